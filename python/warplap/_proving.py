"""The worker's side of the sandbox for Triton kernels: compiled bytes and a description of arguments come in; it
launches them and says how it went. Whatever a kernel does to this process does not matter to anyone."""

from __future__ import annotations

import json
import os
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

    from . import _warplap

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


def serve() -> None:
    """Launches what it is told to until the caller has gone."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what kernels print is not for the caller
    import torch

    torch.cuda.init()
    torch.cuda.synchronize()
    print(json.dumps({"ready": True}), file=out)
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            _launch(order)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            try:  # the context lives: this was a refusal, which the caller will find out itself
                torch.cuda.synchronize()
                answer["refused"] = text
            except Exception:
                answer["fatal"] = text
        print(json.dumps(answer), file=out)
        if "fatal" in answer:
            os._exit(1)
