"""matmul over torch tensors: kernels, shapes under tracing, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _warplap
from ..operator import cuda as operator_cuda
from . import batched_matmul
from ..operator.torch_fallback import cast, has_kernels
from ..operator.compile import fake
from ..operator.library import FLOATS, check_out, floats, lib, lines, op, ordinary, rows
from ..operator.eager import operator

_HALVES = (torch.float16, torch.bfloat16)


def _matmul_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    a, b = lines(a), lines(b)
    if ordinary(a, b) and out.stride(-1) == 1:
        _warplap.matmul_into(a, b, out)
    else:
        out.copy_(torch.mm(a, b))


def _matmul_cpu(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_empty((a.shape[0], b.shape[1]))
    _matmul_into(a, b, out)
    return out


def _matmul_cuda_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    a, b = lines(a), lines(b)
    if ordinary(a, b) and out.stride(-1) == 1:
        operator_cuda.matmul(a, b, out)
    else:
        out.copy_(torch.mm(a, b))


def _matmul_cuda(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_empty((a.shape[0], b.shape[1]))
    _matmul_cuda_into(a, b, out)
    return out


lib.impl("matmul", _matmul_cpu, "CPU")
lib.impl("matmul", _matmul_cuda, "CUDA")
lib.impl("matmul_out", _matmul_into, "CPU")
lib.impl("matmul_out", _matmul_cuda_into, "CUDA")


@fake("matmul")
def _matmul_fake(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]))


@fake("matmul_out")
def _matmul_out_fake(a: Tensor, b: Tensor, out: Tensor) -> None:
    return None


def product(a: Tensor, b: Tensor) -> Tensor:
    """A product of a backward pass: at once where nobody traces and no gradient of it is wanted."""
    if not torch.compiler.is_compiling():
        found = _warplap.matmul_direct(a, b)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return _matmul(a, b)  # type: ignore[no-any-return]


# Rows from which adding them up is left to a product with ones: torch's own sum over rows of two-byte numbers takes
# twice as long as reading them. By rows, type and device.
_MANY = 1024
_ones: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}


def sum_of_rows(grad: Tensor) -> Tensor:
    """The gradient of a bias."""
    if type(grad) is not Tensor or not grad.is_cuda or grad.dtype not in _HALVES or grad.shape[0] < _MANY:
        return grad.sum(0)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return grad.sum(0)
    key = (grad.shape[0], grad.dtype, grad.device)
    ones = _ones.get(key)
    if ones is None:
        if torch.cuda.is_current_stream_capturing():
            return grad.sum(0)  # what is made now belongs to the graph
        if len(_ones) >= 16:
            _ones.clear()
        ones = _ones[key] = grad.new_ones((1, grad.shape[0]))
    return product(ones, grad).view(-1)


def _save_pair(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    return (product(grad, b.t()) if needs_a else None, product(a.t(), grad) if needs_b else None)


def _matmul_run(a: Tensor, b: Tensor) -> Tensor:
    found = _warplap.matmul_direct(a, b)
    if found is not None:
        return found
    return _matmul_cuda(a, b) if a.is_cuda else _matmul_cpu(a, b)


_matmul, _matmul_node = operator("matmul", _matmul_run, _save_pair, _matmul_backward)


def matmul_node(a: Tensor, b: Tensor) -> Tensor:
    """One node of torch's graph, of plain tensors that fit."""
    if a.ndim == b.ndim == 2:
        return _matmul_node(a, b)  # type: ignore[no-any-return]
    c = _matmul_node(rows(a), b.unsqueeze(1) if b.ndim == 1 else b)
    return c.reshape((*a.shape[:-1], *b.shape[1:]))  # type: ignore[no-any-return]


def fit(a: Tensor, b: Tensor) -> bool:
    """Whether two are what most calls have: of one type that kernels have, in one place, the second a matrix."""
    kind = a.dtype
    same = kind in FLOATS and kind == b.dtype and a.device == b.device and a.layout == b.layout == torch.strided
    return same and a.dim() >= 2 and b.dim() == 2


def matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    if out is None and fit(a, b) and a.dim() == 2 and a.shape[1] == b.shape[0]:
        return _matmul(a, b)
    a, b = cast(a, b)
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
        return batched_matmul.matmul(a, b, out)
    if a.shape[-1] != b.shape[0]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {a.shape[-1]} rows as a has columns")
    right = b.unsqueeze(1) if b.ndim == 1 else b
    left = rows(a)
    shape = (*a.shape[:-1], *b.shape[1:])
    if out is not None:
        check_out(out, shape, a=a, b=b)
        if out.ndim == 2:
            op.matmul_out(left, right, out)
        else:
            out.copy_(_matmul(left, right).reshape(shape))
        return out
    c = _matmul(left, right)
    return c if c.shape == shape else c.reshape(shape)


def _spread(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The shape of the product of two batches of matrices."""
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {a.shape[-1]} rows as a has columns")
    pairs = zip(a.shape[-3::-1], b.shape[-3::-1])
    if any(one != other and 1 not in (one, other) for one, other in pairs):
        raise ValueError(f"b: has shape {list(b.shape)}, expected a batch that spreads with a's {list(a.shape)}")
    return (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *a.shape[-2:-1], b.shape[-1])
