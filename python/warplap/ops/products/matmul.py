"""``warplap.matmul``: products of matrices, and of batches of them."""

from __future__ import annotations

import math
from typing import Any

from ... import _warplap
from ...arrays import numpy as arrays
from ...arrays.types import Array
from ...operator import autocast
from ...operator.call.call_cache import prepared
from ...operator.call.eager import PLAIN, is_compiling
from ...operator.call.fallback import kernel_or_torch
from ...operator.checks import FLOATS, NAMES, check_out, floats, has_kernels, ordinary
from ...operator.declare import Operator
from ...operator.layout import lines, ones, rows
from ...operator.optional_torch import Tensor, torch
from ...operator.public import Public, compiling
from ...training.steps import Call, Steps

_into, _direct = _warplap.matmul_into, _warplap.matmul_direct


def problem(a: Any, b: Any, out: Any = None) -> str:
    """The problem that a call is, in its text form."""
    if b.ndim > 2:
        raise ValueError(f"b: has {b.ndim} dimensions, expected 1 or 2 (a problem of a batch has batch= in its text)")
    a = a.reshape(-1, a.shape[-1]) if a.ndim != 2 else a
    return _warplap.matmul_problem(a, b.reshape(-1, 1) if b.ndim == 1 else b, out)


# Over arrays.


def _of_arrays(a: Any, b: Any, out: Any = None) -> Any:
    a, b = arrays.array(a, "a"), arrays.array(b, "b")
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"{'a' if a.ndim == 0 else 'b'}: has 0 dimensions, expected 1 or more")
    # Batches on both sides, and types that no kernel has, are NumPy's own.
    if b.ndim > 2 or (a.dtype == b.dtype and a.dtype.kind in "fiuc" and a.dtype.name not in ("float32", "float16")):
        return arrays.numpy().matmul(a, b, out=None if out is None else arrays.array(out, "out"))
    lead, column = a.shape[:-1], b.ndim == 1
    right = b[:, None] if column else b
    if a.shape[-1] != right.shape[0]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {a.shape[-1]} rows as a has columns")
    target = arrays.into(out, lead if column else (*lead, right.shape[1]), a)
    rows = math.prod(lead)
    if 0 in (rows, *right.shape):
        target[...] = 0
        return target
    left, right = arrays.plain(a.reshape(rows, a.shape[-1])), arrays.plain(right)
    return arrays.write(target, rows, right.shape[1], lambda flat: _warplap.matmul_into(left, right, flat))


# Over torch's tensors.


def _run_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    a, b = lines(a), lines(b)
    fits = ordinary(a, b) and out.stride(-1) == 1
    kernel_or_torch(lambda: _into(a, b, out), lambda: out.copy_(torch.mm(a, b)), fits, "torch.mm")


def _run(a: Tensor, b: Tensor) -> Tensor:
    result = _direct(a, b)
    if result is None:
        result = a.new_empty((a.shape[0], b.shape[1]))
        _run_into(a, b, result)
    return result


def _shape(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]))


def product(a: Tensor, b: Tensor) -> Tensor:
    """A product of a backward pass: at once where nobody traces and no gradient of it is wanted."""
    if not is_compiling():
        result = _direct(a, b)
        if result is not None:
            return result  # type: ignore[no-any-return]
    return MATMUL.call(a, b)  # type: ignore[no-any-return]


# Rows from which adding them up is left to a product with ones: torch's own sum over rows of two-byte numbers takes
# twice as long as reading them.
_MANY = 1024


def sum_of_rows(grad: Tensor) -> Tensor:
    """The gradient of a bias."""
    halves = grad.dtype in (torch.float16, torch.bfloat16)
    if type(grad) is not Tensor or not grad.is_cuda or not halves or grad.shape[0] < _MANY:
        return grad.sum(0)
    line = None if torch.is_grad_enabled() or is_compiling() else ones(grad.shape[0], grad.dtype, grad.device)
    return grad.sum(0) if line is None else product(line, grad).view(-1)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    return (product(grad, b.t()) if needs_a else None, product(a.t(), grad) if needs_b else None)


MATMUL = Operator("matmul(Tensor a, Tensor b) -> Tensor", _run, _shape, save=_save, backward=_backward, autocast=True)
INTO = Operator("matmul_out(Tensor a, Tensor b, Tensor(a!) out) -> ()", _run_into, lambda a, b, out: None)


# Where gradients are wanted: straight to who won the whole step. Everything else (tensors that do not fit, somebody who
# traces) goes the general way.


def _node(a: Tensor, b: Tensor) -> Tensor:
    """One node of torch's graph, of plain tensors that fit."""
    if a.ndim == b.ndim == 2:
        return MATMUL.node(a, b)  # type: ignore[no-any-return]
    c = MATMUL.node(rows(a), b.unsqueeze(1) if b.ndim == 1 else b)
    return c.reshape((*a.shape[:-1], *b.shape[1:]))  # type: ignore[no-any-return]


_steps = Steps("train_matmul", "ab", lambda a, b: problem(a, b), theirs=lambda a, b: torch.matmul(a, b))


def _trained(a: Any, b: Any) -> Any:
    """The product of plain tensors by whoever won; None where it is not for this way to compute."""
    return _steps.direct((a, b), (), _choose)


def _choose(a: Tensor, b: Tensor) -> Call | None:
    if a.ndim == 0 or not 1 <= b.ndim <= 2:  # batches are torch's own
        return None
    return _steps.choose((a, b), (), "none", _node, torch.matmul)


# Batches on both sides.


def _batched(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    """``b`` has three dimensions or more: one batched product, spread as torch.matmul spreads it."""
    if a.ndim >= 2 and out is None and not is_compiling():
        lead = _same_lead(a, b)
        if lead is not None:
            (m, k), n = a.shape[-2:], b.shape[-1]
            count = math.prod(lead)
            problem = f"gemm:m={m},n={n},k={k},dtype={NAMES[a.dtype]},batch={count}"
            c = prepared(problem).direct(a.reshape(count, m, k), b.reshape(count, k, n), None, None)
            if c is not None:
                return c.reshape(*lead, m, n)
    # Gradients, tracing, factors that are spread over a batch: torch's own.
    return torch.matmul(a, b) if out is None else torch.matmul(a, b, out=out)


def _same_lead(a: Tensor, b: Tensor) -> torch.Size | None:
    """The batch that both have, where each lies in memory matrix behind matrix."""
    lead = b.shape[:-2]
    sizes = (*lead, *a.shape[-2:], *b.shape[-2:])
    fits = a.shape[:-2] == lead and a.shape[-1] == b.shape[-2] and all(0 < s <= 1 << 20 for s in sizes)
    # A batch of one is a product like any other, which problems of batches do not name.
    return lead if fits and math.prod(lead) > 1 and a.is_contiguous() and b.is_contiguous() else None


def _spread(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The shape of the product of two batches of matrices."""
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {a.shape[-1]} rows as a has columns")
    pairs = zip(a.shape[-3::-1], b.shape[-3::-1])
    if any(one != other and 1 not in (one, other) for one, other in pairs):
        raise ValueError(f"b: has shape {list(b.shape)}, expected a batch that spreads with a's {list(a.shape)}")
    return (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *a.shape[-2:-1], b.shape[-1])


def fit(a: Tensor, b: Tensor) -> bool:
    """Whether two are what most calls have: of one type that kernels have, in one place, the second a matrix."""
    kind = a.dtype
    same = kind in FLOATS and kind == b.dtype and a.device == b.device and a.layout == b.layout == torch.strided
    return same and a.dim() >= 2 and b.dim() == 2


def of_tensors(a: Any, b: Any, out: Tensor | None = None) -> Any:
    if out is None and fit(a, b) and a.dim() == 2 and a.shape[1] == b.shape[0]:
        return MATMUL.call(a, b)
    a, b = autocast.cast(a, b)
    if not has_kernels(a, b):
        return torch.matmul(a, b) if out is None else torch.matmul(a, b, out=out)
    floats(a=a, b=b, out=out)
    for name, tensor in (("a", a), ("b", b)):
        if tensor.ndim == 0:
            raise ValueError(f"{name}: has 0 dimensions, expected 1 or more")
    if b.ndim > 2:
        shape = _spread(a, b)
        if out is not None:
            check_out(out, shape, a=a, b=b)
        return _batched(a, b, out)
    if a.shape[-1] != b.shape[0]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {a.shape[-1]} rows as a has columns")
    right = b.unsqueeze(1) if b.ndim == 1 else b
    left = rows(a)
    shape = (*a.shape[:-1], *b.shape[1:])
    if out is not None:
        check_out(out, shape, a=a, b=b)
        if out.ndim == 2:
            INTO.dispatched(left, right, out)
        else:
            out.copy_(MATMUL.call(left, right).reshape(shape))
        return out
    c = MATMUL.call(left, right)
    return c if c.shape == shape else c.reshape(shape)


_public = Public(torch=of_tensors, arrays=_of_arrays, problem=problem, optional=("out",), operation="gemm")


@_public
def matmul(a: Array, b: Array, *, out: Array | None = None) -> Array:
    """The product of two matrices, by whichever variant is fastest here and proved right.

    ``a`` has shape (..., m, k) or (k,), ``b`` (..., k, n) or (k,), with batches spread as ``torch.matmul`` spreads
    them; float32, float16 or bfloat16 with sums in float32, other types by torch's own product. Both may be transposed
    or padded. torch in, torch out (differentiable); NumPy in, NumPy out; CUDA arrays of other libraries (CuPy, Numba,
    JAX) are borrowed where torch is there. ``out`` of shape (m, n) is written and returned.
    """
    if not compiling():
        result = _direct(a, b, out)
        if result is not None:
            return result
        if out is None and type(a) in PLAIN and type(b) in PLAIN:
            result = _trained(a, b)
            return of_tensors(a, b) if result is None else result
    return _public.of({"a": a, "b": b, "out": out})
