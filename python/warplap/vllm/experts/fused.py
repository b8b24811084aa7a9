"""vLLM's own functions for fused experts, wherever its version keeps them, and the device they run on."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import space
from .compile_ahead import WHERE
from .shapes import Shape

_PACKAGE = "vllm.model_executor.layers.fused_moe"


class NotHere(RuntimeError):
    """vLLM, or what it needs, is not here."""


@functools.cache
def named(name: str) -> Any:
    """A function of vLLM's."""
    looked = (WHERE, _PACKAGE, f"{_PACKAGE}.config")
    for place in looked:
        try:
            result = getattr(importlib.import_module(place), name, None)
        except ModuleNotFoundError as why:
            if why.name == "vllm":
                raise NotHere("vllm: is not installed: pip install vllm") from None
            continue
        if result is not None:
            return result
    raise NotHere(f"vllm {version('vllm')}: has no {name} in {' or '.join(looked)}: expected 0.26 to 0.32")


def version(package: str) -> str:
    """A package's version; of vLLM, whoever built it."""
    for name in (package, f"{package}-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return str(getattr(importlib.import_module(package), "__version__", "unknown"))


@dataclass(frozen=True)
class Device:
    """What kernels run on: a GPU, or Triton's interpreter on the CPU."""

    name: str  # as vLLM writes it into a table's name
    torch: str
    arch: int
    room: int | None

    @staticmethod
    def here() -> Device:
        """The first GPU; with TRITON_INTERPRET=1 the CPU."""
        import torch
        import triton

        name = str(named("get_config_file_name")(1, 1, None)).partition("device_name=")[2].removesuffix(".json")
        if triton.knobs.runtime.interpret:
            return Device(name, "cpu", 90, None)
        if not torch.cuda.is_available():
            raise NotHere("cuda: no GPU is at hand, expected one: fused experts are raced where they will run")
        facts = torch.cuda.get_device_properties(0)
        major, minor = torch.cuda.get_device_capability(0)
        room = getattr(facts, "shared_memory_per_block_optin", None)
        return Device(name, "cuda:0", 10 * major + minor, room)


def table_name(shape: Shape) -> str:
    """The name of the table that vLLM looks for."""
    block = list(shape.block) if shape.block else None
    return str(named("get_config_file_name")(shape.experts, shape.shard, shape.word, block))


def default(shape: Shape, tokens: int) -> dict[str, Any]:
    """What vLLM takes where there is no table."""
    asked = named("get_default_config")
    inputs = {
        "M": tokens, "E": shape.experts, "N": shape.shard, "K": shape.hidden, "topk": shape.top_k, "dtype": shape.word,
        "block_shape": list(shape.block) if shape.block else None, "is_marlin": False,
    }  # fmt: skip
    takes = inspect.signature(asked).parameters
    return dict(asked(**{name: value for name, value in inputs.items() if name in takes}))


def folder() -> Path:
    """Where the wheel keeps its tables."""
    return Path(inspect.getfile(inspect.unwrap(named("get_default_config")))).parent / "configs"


def shipped(shape: Shape) -> dict[int, dict[str, Any]]:
    """The table that vLLM ships for a shape; empty where it ships none."""
    return read_table(folder() / table_name(shape))


def read_table(path: Path) -> dict[int, dict[str, Any]]:
    """The rows of a table; empty where there is none."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {int(m): row for m, row in body.items() if m.isdecimal() and isinstance(row, dict)}


def nearest(table: dict[int, dict[str, Any]], tokens: int) -> space.Config | None:
    """The row that vLLM takes for a number of tokens."""
    return space.whole(table[min(table, key=lambda m: abs(m - tokens))]) if table else None
