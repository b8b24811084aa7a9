"""``warplap.softmax``: softmax of rows, of which many may share a row of a mask."""

from __future__ import annotations

import math
from typing import Any, Sequence

from ..arrays import numpy as arrays
from ..operator import autocast
from ..operator.call.call_cache import prepared_call
from ..operator.call.direct import REFUSALS
from ..operator.call.eager import PLAIN
from ..operator.call.fallback import kernel_or_torch
from ..operator.candidate import Candidate
from ..operator.checks import floats, is_double, is_raced
from ..operator.declare import Operator, like
from ..operator.layout import kernel_input, rows
from ..operator.optional_torch import F, Tensor, torch
from ..operator.problem_text import dtype_name, fields, text
from ..operator.public import Public, compiling

# The problem.


@prepared_call
def _call(shape: Sequence[int], dtype: Any, scale: float, mask: int, each: int) -> str:
    """Rows of a shape with so many rows of a mask."""
    masked = {"mask": mask, "each": each} if mask else {}
    return text("softmax", rows=math.prod(shape[:-1]), n=shape[-1], dtype=dtype_name(dtype), scale=scale, **masked)


@prepared_call
def _grad_call(shape: Sequence[int], dtype: Any, scale: float) -> str:
    return text("softmax_grad", rows=math.prod(shape[:-1]), n=shape[-1], dtype=dtype_name(dtype), scale=scale)


def shared(shape: Sequence[int], mask: Sequence[int]) -> tuple[int, int] | None:
    """How rows of a shape share those of a mask that is spread over them: the mask's rows, and how many rows one after
    another have the same one. None where no problem says it, and the mask is to be written out."""
    if len(mask) > len(shape) or not mask or mask[-1] != shape[-1]:
        return None
    lead, over = list(shape[:-1]), [1] * (len(shape) - len(mask)) + list(mask[:-1])
    if any(m not in (1, n) for m, n in zip(over, lead)):
        return None
    own = [i for i, m in enumerate(over) if m != 1]
    if not own:
        return 1, 1
    first, last = own[0], own[-1]
    if over[first : last + 1] != lead[first : last + 1]:
        return None
    return math.prod(over), math.prod(lead[last + 1 :])


def _check(x: Any, mask: Any, scale: float) -> None:
    """Whether shapes belong together, and the rest is what there is."""
    if x.ndim == 0:
        raise ValueError("x: has 0 dimensions, expected 1 or more")
    if not math.isfinite(scale):
        raise ValueError(f"scale: is {scale}, expected a finite number")
    if mask is not None:
        fits = mask.ndim <= x.ndim and all(m in (1, n) for m, n in zip(mask.shape[::-1], x.shape[::-1]))
        if not fits:
            raise ValueError(f"mask: has shape {list(mask.shape)}, expected one that spreads over {list(x.shape)}")


def _problem(x: Any, mask: Any = None, scale: float = 1.0) -> str:
    _check(x, mask, scale)
    lines, each = (0, 1) if mask is None else shared(x.shape, mask.shape) or (math.prod(x.shape[:-1]), 1)
    return _call(tuple(x.shape), x.dtype, float(scale), lines, each).problem


# Over arrays.


def _of_arrays(x: Any, mask: Any, scale: float) -> Any:
    np = arrays.numpy()
    x = arrays.array(x, "x")
    mask = None if mask is None else arrays.array(mask, "mask")
    _check(x, mask, scale)
    y = np.empty(x.shape, x.dtype)
    if x.size:
        lines, each, flat = 0, 1, lambda a: np.ascontiguousarray(a).reshape(-1, x.shape[-1])
        if mask is not None:
            sharing = shared(x.shape, mask.shape)
            if sharing is None:
                mask, sharing = np.broadcast_to(mask, x.shape), (x.size // x.shape[-1], 1)
            lines, each = sharing
            mask = flat(mask.astype(x.dtype, copy=False))
        _call(x.shape, x.dtype, scale, lines, each)(flat(x), mask, y.reshape(-1, x.shape[-1]))
    return y


# By torch's own operators, which race too.


def _spread(mask: Tensor, count: int, each: int) -> Tensor:
    """Rows of a mask as so many rows have them."""
    lines, n = mask.shape
    return mask[:, None].expand(lines, each, n).reshape(-1, n).repeat(-(-count // (lines * each)), 1)[:count]


def _is_exact(scale: float) -> bool:
    """Whether a product with it is not rounded: it is a power of two, and no small number is lost."""
    return math.frexp(scale)[0] in (0.5, -0.5) and 2**-4 <= abs(scale) <= 1.0


def by_torch(x: Tensor, mask: Tensor | None = None, *, scale: float, each: int) -> Tensor:
    """A product and a sum in one pass, rounded to float32 at the most, then a softmax."""
    if mask is None:
        scores = x if scale == 1.0 else x * scale if _is_exact(scale) else x.float() * scale
        return torch.softmax(scores, -1).to(x.dtype)
    lines, n = mask.shape
    if x.shape[0] % (lines * each) == 0:
        scores = torch.add(mask.float()[:, None], x.view(-1, lines, each, n), alpha=scale).view(x.shape)
    else:
        scores = torch.add(_spread(mask, x.shape[0], each).float(), x, alpha=scale)
    return torch.softmax(scores, -1).to(x.dtype)


def grad_by_torch(y: Tensor, grad: Tensor, *, scale: float) -> Tensor:
    """In float32 where a factor would round what is rounded already."""
    if scale == 1.0 or y.dtype == torch.float32 or _is_exact(scale):
        dx = torch._softmax_backward_data(grad, y, -1, y.dtype)
        return dx if scale == 1.0 else dx * scale
    return (torch._softmax_backward_data(grad.float(), y.float(), -1, torch.float32) * scale).to(y.dtype)


def grad_facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    return {"scale": float(fields(problem).get("scale", 1.0))}


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    return {**grad_facts(problem), "each": int(fields(problem).get("each", 1))}


CANDIDATES = [
    Candidate("softmax", "torch_softmax", by_torch, facts=facts, returns=True),
    Candidate("softmax_grad", "torch_softmax_grad", grad_by_torch, facts=grad_facts, returns=True),
]


# Over torch's tensors.


def _direct(x: Any, mask: Any, scale: float, each: int = 1) -> Any:
    """At once, over plain tensors of which nobody wants a gradient; None for everything else."""
    if type(x) not in PLAIN:
        return None
    shape = x.shape
    try:
        call = _call(shape, x.dtype, scale, 0 if mask is None else mask.shape[0], each)
        flat = x if len(shape) == 2 else x.view(-1, shape[-1])
    except REFUSALS:
        return None
    y = call.direct(flat, mask)
    return y if y is None or len(shape) == 2 else y.view(shape)


def _run(x: Tensor, mask: Tensor | None, scale: float, each: int) -> Tensor:
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    result = _direct(x, mask, scale, each)
    if result is not None:
        return result  # type: ignore[no-any-return]
    if x.numel() == 0:
        return x.new_empty(x.shape)
    flat, mask = kernel_input(rows(x)), kernel_input(mask)
    return kernel_or_torch(
        lambda: _call(flat.shape, x.dtype, scale, 0 if mask is None else mask.shape[0], each)(flat, mask),
        lambda: by_torch(flat, mask, scale=scale, each=each),
        is_raced(flat),
    ).reshape(x.shape)


def _run_grad(y: Tensor, grad: Tensor, scale: float) -> Tensor:
    if y.numel() == 0:
        return y.new_empty(y.shape)
    flat, up = kernel_input(rows(y)), kernel_input(rows(grad))
    return kernel_or_torch(
        lambda: _grad_call(flat.shape, y.dtype, scale)(flat, up),
        lambda: grad_by_torch(flat, up, scale=scale),
        is_raced(flat),
    ).reshape(y.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, mask, ctx.scale, ctx.each = inputs
    ctx.lines = None if mask is None else mask.shape[0]
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    dx = GRAD.call(y, grad, ctx.scale) if ctx.needs_input_grad[0] else None
    dmask = None
    if ctx.lines is not None and ctx.needs_input_grad[1]:
        scores, n = GRAD.call(y, grad, 1.0).reshape(-1, y.shape[-1]), y.shape[-1]
        whole = ctx.lines * ctx.each
        short = -scores.shape[0] % whole
        scores = F.pad(scores, (0, 0, 0, short)) if short else scores
        dmask = scores.reshape(-1, ctx.lines, ctx.each, n).sum((0, 2), dtype=torch.float32).to(y.dtype)
    return dx, dmask, None, None


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    y, grad, ctx.scale = inputs
    ctx.save_for_backward(y, grad)


def _grad_backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
    y, grad = ctx.saved_tensors
    wide = torch.promote_types(y.dtype, torch.float32)
    y, grad, up = y.to(wide), grad.to(wide), up.to(wide)
    over = (up * y).sum(-1, keepdim=True)
    of_y = ctx.scale * (up * (grad - (grad * y).sum(-1, keepdim=True)) - grad * over)
    of_grad = ctx.scale * y * (up - over)
    return of_y.to(ctx.saved_tensors[0].dtype), of_grad.to(ctx.saved_tensors[0].dtype), None


SOFTMAX = Operator(
    "softmax(Tensor x, Tensor? mask, float scale, SymInt each) -> Tensor", _run, like(), save=_save, backward=_backward
)
GRAD = Operator(
    "softmax_grad(Tensor y, Tensor grad, float scale) -> Tensor",
    _run_grad, like(), save=_save_grad, backward=_grad_backward,
)  # fmt: skip


def of_tensors(x: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    _check(x, mask, scale)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=x.dtype, device=mask.device).masked_fill_(~mask, -math.inf)
    (mask,) = autocast.like_first(x, mask)
    if is_double(x, mask):
        return torch.softmax(x * scale if mask is None else x * scale + mask, -1)
    floats(x=x, mask=mask)
    each = 1
    if mask is not None:
        sharing = shared(x.shape, mask.shape)
        if sharing is None:
            mask, sharing = mask.expand(x.shape), (math.prod(x.shape[:-1]), 1)
        each = sharing[1]
        mask = mask.reshape(sharing[0], x.shape[-1])
    return SOFTMAX.call(x, mask, scale, each)  # type: ignore[no-any-return]


_public = Public(torch=of_tensors, arrays=_of_arrays, problem=_problem, optional=("mask",))


@_public
def softmax(x: Any, mask: Any = None, *, scale: float = 1.0) -> Any:
    """``softmax(scale * x + mask)`` over the last dimension.

    ``mask`` spreads over ``x`` as torch spreads it, and is written out only where whole rows cannot share its rows; it
    is of the type of ``x`` and may hold -inf, or (torch) booleans, of which False hides. float32, float16 or bfloat16,
    with arithmetic in float32. torch in, torch out (differentiable in both); NumPy in, NumPy out.
    """
    if mask is None and not compiling():
        result = _direct(x, None, float(scale))
        if result is not None:
            return result
    return _public.of({"x": x, "mask": mask}, scale=float(scale))
