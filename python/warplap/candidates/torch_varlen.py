"""torch's flash attention over packed sequences as a candidate: what ``torch.nn.attention.varlen`` calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator.candidate import Candidate
from ..operator.problem_text import fields
from .torch_attention_grad import Gradients, _no_dropout

_aten = torch.ops.aten


def facts(problem: str) -> dict[str, Any]:
    """What it is told beside tensors; windows count from the last corner, -1 is none."""
    inputs = fields(problem)
    causal, window = inputs["causal"] == "true", int(inputs.get("window", -1))
    return {
        "longest": (int(inputs["sq"]), int(inputs["sk"])),
        "scale": float(inputs["scale"]) if "scale" in inputs else int(inputs["d"]) ** -0.5,
        "causal": causal,
        "window": (window, 0 if causal and window >= 0 else window),
        "sums": "lse" in inputs,
    }


def _fit(problem: str) -> str | None:
    inputs = fields(problem)
    if "tq" not in inputs:
        return "packed sequences only"
    if inputs["dtype"] == "f32":
        return "half types only"
    if "dv" in inputs or int(inputs["d"]) % 8 or int(inputs["d"]) > 256:
        return "heads of one size, a multiple of 8 up to 256"
    known = inputs.keys() & {"softcap", "alibi", "dropout", "mask"}
    if known:
        return f"it knows nothing of {min(known)}"
    if inputs.get("layout") != "bshd":
        return "rows of all heads beside each other only"
    # Whether every sequence has as many queries as keys is not said by the problem.
    if (inputs["causal"] == "true" or "window" in inputs) and inputs.get("corner") != "bottom":
        return "it counts from the last corner"
    return None if torch.backends.cuda.is_flash_attention_available() else "this torch has none"


def _laid(*tensors: Tensor) -> list[Tensor]:
    """(rows, heads, d), from the order of slots or into it."""
    return [t.transpose(0, 1) for t in tensors]


def _forward(
    q: Tensor, k: Tensor, v: Tensor, mask: None, slopes: None, seed: None, table: None, lengths: None, begins_q: Tensor,
    begins_k: Tensor, *, longest: tuple[int, int], scale: float, causal: bool, window: tuple[int, int], sums: bool,
) -> Any:  # fmt: skip
    out, lse = _aten._flash_attention_forward(
        *_laid(q, k, v), begins_q, begins_k, *longest, 0.0, causal, False, scale=scale,
        window_size_left=window[0], window_size_right=window[1],
    )[:2]  # fmt: skip
    return (*_laid(out), lse) if sums else _laid(out)[0]


def _backward(
    q: Tensor, k: Tensor, v: Tensor, mask: None, out: Tensor, lse: Tensor, grad: Tensor, slopes: None, seed: None,
    begins_q: Tensor, begins_k: Tensor, *, longest: tuple[int, int], scale: float, causal: bool,
    window: tuple[int, int], sums: bool,
) -> Gradients:  # fmt: skip
    inputs = _laid(grad, q, k, v, out)
    dq, dk, dv = _aten._flash_attention_backward(
        *inputs, lse, begins_q, begins_k, *longest, 0.0, causal, *_no_dropout(q.device), scale=scale,
        window_size_left=window[0], window_size_right=window[1],
    )  # fmt: skip
    a, b, c = _laid(dq, dk, dv)
    return a, b, c


PACKED = [
    Candidate(op, name, call, _fit, devices=("cuda",), facts=facts, returns=True)
    for op, name, call in (("attention", "torch_varlen", _forward), ("attention_grad", "torch_varlen_grad", _backward))
    if hasattr(_aten, "_flash_attention_forward")  # some builds of torch have none
]
