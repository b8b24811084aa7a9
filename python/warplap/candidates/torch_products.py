"""torch's products of matrices as candidates: plain ones, and layers with all that may follow them."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..operator import problem_text
from ..operator.candidate import Candidate


def _torch_mm(a: Tensor, b: Tensor, c: Tensor) -> None:
    torch.mm(a, b, out=c) if a.ndim == 2 else torch.bmm(a, b, out=c)


def _torch_mm_new(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b) if a.ndim == 2 else torch.bmm(a, b)


# What is done to a product in its own memory.
_FINISHES: dict[str, Callable[[Tensor], Any]] = {
    "relu": torch.relu_,
    "gelu": torch.ops.aten.gelu_,
    "gelu_tanh": lambda c: torch.ops.aten.gelu_(c, approximate="tanh"),
    "silu": lambda c: F.silu(c, inplace=True),
    "tanh": torch.tanh_,
    "sigmoid": torch.sigmoid_,
}


# What is done with another matrix, in the product's own memory.
_JOINS: dict[str, Callable[[Tensor, Tensor], Any]] = {"add": Tensor.add_, "mul": Tensor.mul_}


def _torch_linear(
    a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None = None, joined: Tensor | None = None,
    b2: Tensor | None = None, scale: Tensor | None = None, *,
    finish: Callable[[Tensor], Any] | None, join: Callable[[Tensor, Tensor], Any] | None, rms: float | None,
) -> None:  # fmt: skip
    """What ``F.linear`` does with matrices, into memory that is there already; then the activation, then the join or
    the other product of a pair. A norm in front is torch's own; given factors go over the product."""
    if rms is not None:
        a = F.rms_norm(a, a.shape[-1:], eps=rms)
    if scale is not None:
        _torch_mm(a, b, c)
        _scaled(c, scale, bias)
    elif bias is None:
        _torch_mm(a, b, c)
    else:
        torch.addmm(bias, a, b, out=c) if a.ndim == 2 else torch.baddbmm(bias, a, b, out=c)
    if finish is not None:
        finish(c)
    if join is not None and joined is not None:
        join(c, joined)
    if b2 is not None:
        c.mul_(_scaled(_torch_mm_new(a, b2), scale))


def _scaled(c: Tensor, scale: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """A product times one factor, or one for each row of all of a batch, and then its bias."""
    if scale is not None:
        c.mul_(scale if scale.numel() == 1 else scale.view(*c.shape[:-1], 1))
    return c if bias is None else c.add_(bias)


def _torch_linear_new(
    a: Tensor, b: Tensor, bias: Tensor | None = None, joined: Tensor | None = None, b2: Tensor | None = None,
    scale: Tensor | None = None, *,
    finish: Callable[[Tensor], Any] | None, join: Callable[[Tensor, Tensor], Any] | None, rms: float | None,
) -> Tensor:  # fmt: skip
    """The same as a new tensor."""
    if rms is not None:
        a = F.rms_norm(a, a.shape[-1:], eps=rms)
    if scale is not None:
        c = _scaled(_torch_mm_new(a, b), scale, bias)
    elif bias is None:
        c = _torch_mm_new(a, b)
    else:
        c = torch.addmm(bias, a, b) if a.ndim == 2 else torch.baddbmm(bias, a, b)
    if finish is not None:
        finish(c)
    if join is not None and joined is not None:
        join(c, joined)
    return c if b2 is None else c.mul_(_scaled(_torch_mm_new(a, b2), scale))


def _has_epilogue(problem: str) -> bool:
    return bool(problem_text.fields(problem).keys() & {"bias", "act", "join", "pair", "scale", "rms"})


def _torch_mm_fit(problem: str) -> str | None:
    aside = "it has no factors and no norm, adds no bias, has no activation, joins nothing and is no pair"
    return aside if _has_epilogue(problem) else None


def _torch_linear_fit(problem: str) -> str | None:
    inputs = problem_text.fields(problem)
    if inputs["dtype"] == "f16" and "scale" in inputs:
        return "the product would be rounded to f16, and perhaps be too large for it, before it is scaled"
    plain = "without factors, a norm, a bias, an activation, a join and a pair it is a plain product"
    return None if _has_epilogue(problem) else plain


def _torch_linear_facts(problem: str) -> dict[str, Any]:
    inputs = problem_text.fields(problem)
    rms = float(inputs["rms"]) if "rms" in inputs else None
    finish, join = _FINISHES.get(inputs.get("act", "none")), _JOINS.get(inputs.get("join", "none"))
    return {"finish": finish, "join": join, "rms": rms}


CANDIDATES = [
    Candidate(
        "gemm", "torch_mm", _torch_mm, _torch_mm_fit,
        devices=("cpu",), give=_torch_mm_new, as_called={"matmul": torch.mm, "linear": F.linear},
    ),
    Candidate(
        "gemm", "torch_linear", _torch_linear, _torch_linear_fit,
        facts=_torch_linear_facts, give=_torch_linear_new, as_called={"linear": F.linear},
    ),
]  # fmt: skip
