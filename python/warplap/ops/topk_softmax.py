"""``warplap.topk_softmax``: the router of a mixture of experts, the k largest of each row and their shares of its
softmax."""

from __future__ import annotations

import math
from typing import Any, Sequence

from ..arrays import numpy as arrays
from ..operator.call.call_cache import prepared_call
from ..operator.call.direct import REFUSALS
from ..operator.call.eager import PLAIN
from ..operator.call.fallback import kernel_or_torch
from ..operator.candidate import Candidate
from ..operator.checks import floats, is_double, is_raced
from ..operator.declare import Operator
from ..operator.layout import kernel_input, rows
from ..operator.optional_torch import Tensor, torch
from ..operator.problem_text import DTYPES, dtype_name, fields, text
from ..operator.public import Public, compiling

# Experts of a row, and those that are chosen, at the most; torch does what is more.
_MOST_EXPERTS, _MOST_CHOSEN = 4096, 64


# The problem.


@prepared_call
def _call(shape: Sequence[int], k: int, dtype: Any, renormalize: bool) -> str:
    """Rows of a shape."""
    sizes = {"rows": math.prod(shape[:-1]), "n": shape[-1], "k": k}
    return text("topk_softmax", **sizes, dtype=dtype_name(dtype), renormalize=renormalize)


def _check(x: Any, k: Any) -> None:
    """Whether there are as many as are to be chosen."""
    if x.ndim == 0:
        raise ValueError("x: has 0 dimensions, expected 1 or more")
    if isinstance(k, bool) or not hasattr(k, "__index__"):
        raise TypeError(f"k: is {k!r}, expected a whole number")
    if not 1 <= k <= x.shape[-1]:
        raise ValueError(f"k: is {k}, expected a whole number from 1 to {x.shape[-1]}, the last dimension of x")


def _problem(x: Any, k: int, renormalize: bool = True) -> str:
    _check(x, k)
    return _call(tuple(x.shape), int(k), x.dtype, bool(renormalize)).problem


# Over arrays.


def _of_arrays(x: Any, k: int, renormalize: bool) -> Any:
    np = arrays.numpy()
    x = arrays.array(x, "x")
    _check(x, k)
    if x.dtype.name not in DTYPES:
        raise TypeError(f"x: holds {x.dtype}, expected float32 or float16")
    if k > _MOST_CHOSEN:
        raise ValueError(f"k: is {k}, expected at most {_MOST_CHOSEN} for arrays")
    if x.shape[-1] > _MOST_EXPERTS:
        raise ValueError(f"x: has {x.shape[-1]} experts, expected at most {_MOST_EXPERTS} for arrays")
    shape = (*x.shape[:-1], int(k))
    weights, indices = np.empty(shape, np.float32), np.empty(shape, np.int32)
    if x.size:
        flat = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        _call(x.shape, int(k), x.dtype, renormalize)(flat, weights.reshape(-1, k), indices.reshape(-1, k))
    return weights, indices


# By torch's own operators, which race too.


def by_torch(x: Tensor, *, k: int, renormalize: bool) -> tuple[Tensor, Tensor]:
    """A stable sort, since ``torch.topk`` does not say which of equal ones it takes, and a softmax in float32."""
    first, places = torch.sort(x, dim=-1, descending=True, stable=True)
    first, places = first[..., :k], places[..., :k]
    wide = torch.promote_types(x.dtype, torch.float32)
    if renormalize:
        weights = torch.softmax(first, -1, dtype=wide)
    else:
        weights = torch.softmax(x, -1, dtype=wide).gather(-1, places)
    return weights, places.to(torch.int32)


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    said = fields(problem)
    return {"k": int(said["k"]), "renormalize": said.get("renormalize") == "true"}


CANDIDATES = [Candidate("topk_softmax", "torch_topk_softmax", by_torch, facts=facts, returns=True)]


# Over torch's tensors.


def _direct(x: Any, k: int, renormalize: bool) -> Any:
    """At once, over plain tensors of which nobody wants a gradient; None for everything else."""
    if type(x) not in PLAIN:
        return None
    shape = x.shape
    try:
        call = _call(shape, k, x.dtype, renormalize)
        flat = x if len(shape) == 2 else x.view(-1, shape[-1])
    except REFUSALS:
        return None
    both = call.direct(flat)
    return both if both is None or len(shape) == 2 else tuple(t.view(*shape[:-1], k) for t in both)


def _run(x: Tensor, k: int, renormalize: bool) -> Any:
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    both = _direct(x, k, renormalize)
    if both is not None:
        return both
    if x.numel() == 0:
        return _shapes(x, k, renormalize)
    flat = kernel_input(rows(x))
    weights, indices = kernel_or_torch(
        lambda: _call(flat.shape, k, x.dtype, renormalize)(flat),
        lambda: by_torch(flat, k=k, renormalize=renormalize),
        is_raced(flat) and flat.shape[1] <= _MOST_EXPERTS and k <= _MOST_CHOSEN,
    )
    return weights.reshape(*x.shape[:-1], k), indices.reshape(*x.shape[:-1], k)


def _shapes(x: Tensor, k: int, renormalize: bool) -> Any:
    make = lambda dtype: x.new_empty((*x.shape[:-1], k), dtype=dtype)
    return make(torch.float32), make(torch.int32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, _, ctx.renormalize = inputs
    ctx.save_for_backward(x, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    """By torch's operators over x, which is what second derivatives go through: who is chosen stays."""
    x, indices = ctx.saved_tensors
    places, wide = indices.long(), x.to(torch.promote_types(x.dtype, torch.float32))
    none = torch.zeros_like(wide)
    if ctx.renormalize:
        weights = torch.softmax(wide.gather(-1, places), -1)
        dx = none.scatter(-1, places, weights * (grad - (grad * weights).sum(-1, keepdim=True)))
    else:
        shares = torch.softmax(wide, -1)
        over = (grad * shares.gather(-1, places)).sum(-1, keepdim=True)
        dx = shares * (none.scatter(-1, places, grad) - over)
    return dx.to(x.dtype), None, None


TOPK_SOFTMAX = Operator(
    "topk_softmax(Tensor x, SymInt k, bool renormalize) -> (Tensor, Tensor)",
    _run, _shapes, save=_save, backward=_backward,
)  # fmt: skip


def of_tensors(x: Tensor, k: int, renormalize: bool) -> Any:
    _check(x, k)
    if is_double(x):
        return by_torch(x, k=k, renormalize=renormalize)
    floats(x=x)
    return TOPK_SOFTMAX.call(x, k, renormalize)


_public = Public(torch=of_tensors, arrays=_of_arrays, problem=_problem)


@_public
def topk_softmax(x: Any, k: int, *, renormalize: bool = True) -> Any:
    """The ``k`` largest of each row along the last dimension, ``(weights, indices)``: float32 shares of the row's
    softmax, the largest first, and int32 places.

    With ``renormalize`` weights are divided by their sum, which makes them the softmax over who is chosen. Who that is
    ``x`` itself decides: of equal ones the lower index comes first; -inf hides an expert, whose weight is zero; NaN
    counts as the largest, and a row with one has weights that are NaN, as has a row of nothing but -inf. float32,
    float16 or bfloat16 with arithmetic in float32; torch in, torch out (weights are differentiable, any order); NumPy
    in, NumPy out.
    """
    if type(k) is int and not compiling():
        both = _direct(x, k, bool(renormalize))
        if both is not None:
            return both
    return _public.of({"x": x}, k=k, renormalize=bool(renormalize))
