"""The worker's side of the sandbox: a compiled Triton kernel with a description of its arguments, or a callable by name
with its arguments in a file, comes in; it is run, and how that went goes out. Whatever it does to this process does not
matter to anyone."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from typing import Any


class _Nobody:
    """Asked for a kernel that is not known here: there is none."""

    best_config: Any = None

    def run(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError("the kernel cannot be launched from here")


def _tensor(about: dict[str, Any]) -> Any:
    import numpy
    import torch

    dtype, span = getattr(torch, about["dtype"]), about["span"]
    lead = about["offset"] // dtype.itemsize
    whole = torch.empty(span + lead, dtype=dtype, device=f"cuda:{about['device']}")
    flat = whole[lead:]
    if "file" in about:
        raw = torch.from_numpy(numpy.fromfile(about["file"], dtype=numpy.uint8))
        flat.copy_(raw.view(dtype))
    else:
        flat.copy_(torch.rand(span, device=whole.device, dtype=torch.float32))
    return flat.as_strided(about["shape"], about["strides"])


def _launch(order: dict[str, Any]) -> None:
    import torch
    from triton.runtime import driver

    from .. import _warplap

    arguments: list[Any] = []
    for about in order["arguments"]:
        if "none" in about:
            arguments.append(None)
        elif "same" in about:
            arguments.append(arguments[about["same"]])
        else:
            arguments.append(about["value"] if "value" in about else _tensor(about))
    device = next((a.device.index for a in arguments if isinstance(a, torch.Tensor)), 0)
    torch.cuda.set_device(device)
    with open(order["cubin"], "rb") as file:
        loaded = driver.active.utils.load_binary(order["name"], file.read(), order["shared"], device)
    names = tuple(f"a{i}" for i in range(len(arguments)))
    launches = _warplap.Launches(names, [False] * len(names), [])
    args = tuple(arguments)
    if launches.keep(args, loaded[1], order["threads"], order["shared"], order["types"], [], None, None):
        launches.at(_Nobody(), tuple(order["grid"]))(*args)
        torch.cuda.synchronize(device)


_programs: dict[str, dict[str, Any]] = {}


def _callable(module: str, file: str | None, name: str) -> Any:
    """The callable with this name. The caller's own program is read as one that is not run as the main one."""
    if module == "__main__" and file is not None:
        if file not in _programs:
            sys.path.insert(0, os.path.dirname(file))
            _programs[file] = runpy.run_path(file, run_name="__warplap_worker__")
        scope: Any = _programs[file]
    else:
        scope = vars(importlib.import_module(module))
    first, *rest = name.split(".")
    result = scope[first]
    for part in rest:
        result = getattr(result, part)
    return getattr(result, "fn", result)  # without the decorator


def _wait() -> None:
    """Until the device has finished, where there is one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _call(order: dict[str, Any]) -> None:
    import torch

    sys.path.extend(folder for folder in order["path"] if folder not in sys.path)
    run = _callable(order["module"], order["file"], order["callable"])
    args, kwargs = torch.load(order["arguments"], weights_only=False)
    run(*args, **kwargs)
    _wait()


def serve() -> None:
    """Runs what it is told to until the caller has gone."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what kernels print is not for the caller
    _wait()
    print(json.dumps({"ready": True}), file=out)
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            _call(order) if "callable" in order else _launch(order)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            try:  # the context lives: this was a refusal, which the caller will find out itself
                _wait()
                answer["refused"] = text
            except Exception:
                answer["fatal"] = text
        print(json.dumps(answer), file=out)
        if "fatal" in answer:
            os._exit(1)
