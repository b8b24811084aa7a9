"""What a table is for: a model's ``config.json`` comes in; the sizes of one rank's fused experts go out.

Models name the same things differently, and models of several modalities keep them one level down. Where a model has
experts of two sizes the routed ones are meant: those of a shared expert are another kernel's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Mapping

# Names of the fields, by what they hold; the first that is there counts.
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "num_moe_experts")
WIDTHS = (
    "moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size",
    "expert_hidden_dim", "ffn_hidden_size", "intermediate_size",
)  # fmt: skip
CHOSEN = (
    "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_top_k", "moe_topk", "moe_k",
    "experts_per_token", "moe_experts_per_token",
)  # fmt: skip
HIDDEN = ("hidden_size", "d_model", "n_embd")
# Where models of several modalities keep their language model, and where some keep their experts.
INSIDE = ("text_config", "llm_config", "language_config", "thinker_config", "ffn_config")

# Types of activations, and what weights and activations may be: the word in a table's name.
FLOATS = ("bfloat16", "float16", "float32")
QUANTISED = ("fp8_w8a8", "int8_w8a16")
DTYPES = (*FLOATS, *QUANTISED)


class NoExperts(ValueError):
    """The model has no experts, or a field is missing or wrong."""


@dataclass(frozen=True)
class Shape:
    """The fused experts of one rank."""

    experts: int  # on this rank: E of the table's name
    shard: int  # of the intermediate size: N of the table's name
    hidden: int
    top_k: int
    dtype: str = "bfloat16"  # of activations
    quantised: str | None = None  # "fp8_w8a8", "int8_w8a16"
    block: tuple[int, int] | None = None  # of scales: rows and columns of weights
    all_experts: int = 0  # on all ranks, where they are dealt out (``--ep``); otherwise the same as ``experts``

    @property
    def of_all(self) -> int:
        """How many experts tokens choose from."""
        return self.all_experts or self.experts

    @property
    def word(self) -> str | None:
        """The type in a table's name."""
        return self.quantised or ("float32" if self.dtype == "float32" else None)

    @property
    def bytes_of_weight(self) -> int:
        """Bytes of one weight as it is stored."""
        return 1 if self.quantised else (4 if self.dtype == "float32" else 2)

    @property
    def bytes_of_input(self) -> int:
        """Bytes of one activation as the kernel loads it."""
        return 1 if self.quantised == "fp8_w8a8" else (4 if self.dtype == "float32" else 2)

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for records."""
        return {**asdict(self), "block": list(self.block) if self.block else None}

    @staticmethod
    def of(report: Mapping[str, Any]) -> Shape:
        """What :meth:`told` gave."""
        block = report.get("block")
        return Shape(**{**report, "block": tuple(block) if block else None})


def read(path: str | Path, tp: int = 1, ep: bool = False, dtype: str | None = None) -> Shape:
    """The shape that a model's folder, or its ``config.json``, says."""
    place = Path(path)
    file = place / "config.json" if place.is_dir() else place
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NoExperts(f"{file}: is not there, expected a model's folder or its config.json") from None
    except (OSError, ValueError) as why:
        raise NoExperts(f"{file}: {why}: expected a model's config.json") from None
    if not isinstance(config, dict):
        raise NoExperts(f"{file}: holds a {type(config).__name__}, expected an object")
    try:
        return shape_of(config, tp, ep, dtype)
    except NoExperts as why:
        raise NoExperts(f"{file}: {why}") from None


def shape_of(config: Mapping[str, Any], tp: int = 1, ep: bool = False, dtype: str | None = None) -> Shape:
    """The shape that a configuration says."""
    levels = _levels(config)
    if tp < 1:
        raise NoExperts(f"--tp: is {tp}, expected 1 or more")
    experts = _field(levels, EXPERTS, "the number of experts")
    if experts < 2:
        raise NoExperts(f"experts: there is {experts}, expected a model of several: this one has no fused experts")
    width = _field(levels, WIDTHS, "an expert's intermediate size")
    hidden = _field(levels, HIDDEN, "the hidden size")
    top_k = _field(levels, CHOSEN, "how many experts a token takes")
    if top_k > experts:
        raise NoExperts(f"{_name(levels, CHOSEN)}: is {top_k} of {experts} experts, expected no more than there are")
    split, what = (experts, _name(levels, EXPERTS)) if ep else (width, _name(levels, WIDTHS))
    if split % tp:
        raise NoExperts(f"{what}: {split} is not a multiple of --tp {tp}: vLLM cannot deal it out")
    here, shard = (experts // tp, width) if ep else (experts, width // tp)
    floats, quantised, block = _types(config, levels, dtype)
    if block and (shard % block[0] or shard % block[1]):
        raise NoExperts(f"quantization_config: blocks of {block[0]}x{block[1]} do not divide a shard of {shard}: "
                        f"expected another --tp than {tp}, or --ep")  # fmt: skip
    return Shape(here, shard, hidden, top_k, floats, quantised, block, experts)


def _levels(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The configuration and what lies inside, the innermost first: there the experts are."""
    result: list[Mapping[str, Any]] = [config]
    for level in result:
        result += [level[name] for name in INSIDE if isinstance(level.get(name), dict)]
    return result[::-1]


def _value(value: Any) -> int | None:
    """A size; of a list (one for each layer) the largest."""
    if isinstance(value, list):
        value = max((v for v in value if type(v) is int), default=None)
    return value if type(value) is int and value > 0 else None


def _name(levels: list[Mapping[str, Any]], names: tuple[str, ...]) -> str | None:
    return next((name for level in levels for name in names if _value(level.get(name)) is not None), None)


def _field(levels: list[Mapping[str, Any]], names: tuple[str, ...], what: str) -> int:
    """The first of these fields that holds a size."""
    for level in levels:
        for name in names:
            value = _value(level.get(name))
            if value is not None:
                return value
    odd = next(((n, level[n]) for level in levels for n in names if level.get(n) is not None), None)
    if odd is not None:
        raise NoExperts(f"{odd[0]}: is {odd[1]!r}, expected {what} as a whole number above 0")
    kind = next((level["architectures"] for level in levels[::-1] if level.get("architectures")), None)
    model = f"{', '.join(map(str, kind))} " if isinstance(kind, list) else ""
    raise NoExperts(f"{model}has no field for {what}, expected one of {', '.join(names)}: a model of experts")


def _types(
    config: Mapping[str, Any], levels: list[Mapping[str, Any]], dtype: str | None
) -> tuple[str, str | None, tuple[int, int] | None]:
    """Types of activations and weights, and the block of scales."""
    if dtype is not None and dtype not in DTYPES:
        raise NoExperts(f"--dtype: is '{dtype}', expected one of {', '.join(DTYPES)}")
    said = next((level[n] for level in levels for n in ("dtype", "torch_dtype") if level.get(n)), "bfloat16")
    floats = str(said).removeprefix("torch.")
    floats = floats if floats in FLOATS else "bfloat16"
    if dtype in FLOATS:
        return str(dtype), None, None
    how = next((level["quantization_config"] for level in levels if level.get("quantization_config")), None)
    floats = "bfloat16" if floats == "float32" else floats  # vLLM casts them where weights are narrow
    block = _block(how)
    if dtype is not None:
        return floats, dtype, block if dtype == "fp8_w8a8" else None
    if how is None:
        return (str(said).removeprefix("torch.") if said == "float32" else floats), None, None
    method = how.get("quant_method") if isinstance(how, dict) else how
    if method == "fp8":
        return floats, "fp8_w8a8", block
    if method == "experts_int8":
        return floats, "int8_w8a16", None
    raise NoExperts(
        f"quantization_config: quant_method is {method!r}, whose kernels read no such table as far as is known; "
        f"expected fp8, or --dtype with one of {', '.join(DTYPES)}"
    )


def _block(how: Any) -> tuple[int, int] | None:
    result = how.get("weight_block_size") if isinstance(how, dict) else None
    if result is None:
        return None
    if not (isinstance(result, list) and len(result) == 2 and all(type(n) is int and n > 0 for n in result)):
        raise NoExperts(f"quantization_config: weight_block_size is {result!r}, expected two sizes as [128, 128]")
    return result[0], result[1]
