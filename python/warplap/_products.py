"""matmul and linear over torch tensors: kernels, shapes under tracing, gradients."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _batched, _cuda, _warplap
from ._arrays import unknown_activation
from ._by_torch import cast, has_kernels
from ._compiled import fake
from ._library import FLOATS, check_out, dims, floats, lib, lines, op, ordinary, rows
from ._nodes import operator

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
        _cuda.matmul(a, b, out)
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


def _product(a: Tensor, b: Tensor) -> Tensor:
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
    return _product(ones, grad).view(-1)


def _save_pair(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    return (_product(grad, b.t()) if needs_a else None, _product(a.t(), grad) if needs_b else None)


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


def _fit(a: Tensor, b: Tensor) -> bool:
    """Whether two are what most calls have: of one type that kernels have, in one place, the second a matrix."""
    kind = a.dtype
    same = kind in FLOATS and kind == b.dtype and a.device == b.device and a.layout == b.layout == torch.strided
    return same and a.dim() >= 2 and b.dim() == 2


def matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    if out is None and _fit(a, b) and a.dim() == 2 and a.shape[1] == b.shape[0]:
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
        return _batched.matmul(a, b, out)
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


def _linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """One product with its bias, by whoever is fastest here and right; what no problem expresses goes to torch."""
    x, w = lines(x), lines(w)
    if ordinary(x, w):
        try:
            return _warplap.linear_new(x, w, None if bias is None else bias.contiguous().resolve_neg())
        except NotImplementedError as why:
            _cuda.tell("torch", why)
    return F.linear(x, w, bias)


lib.impl("linear", _linear, "CPU")
lib.impl("linear", _linear, "CUDA")


@fake("linear")
def _linear_fake(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[0]))


def _save_linear(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, w = ctx.saved_tensors
    needs_x, needs_w, needs_bias = ctx.needs_input_grad[:3]
    return (
        _product(grad, w) if needs_x else None,
        _product(grad.t(), x) if needs_w else None,
        sum_of_rows(grad) if needs_bias else None,
    )


def _linear_run(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    found = _warplap.linear_direct(x, w, bias, None)
    return _linear(x, w, bias) if found is None else found


_layer, _layer_node = operator("linear", _linear_run, _save_linear, _linear_backward)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def linear_node(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """One node of torch's graph, of plain tensors that fit."""
    if x.ndim == 2:
        return _layer_node(x, w, bias)  # type: ignore[no-any-return]
    return _layer_node(rows(x), w, bias).reshape((*x.shape[:-1], w.shape[0]))  # type: ignore[no-any-return]


def linear(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None) -> Tensor:
    if activation is not None and activation not in ACTIVATIONS:
        raise unknown_activation(activation)
    if out is None and _fit(x, w) and x.shape[-1] == w.shape[1] and (bias is None or _fits_beside(bias, w)):
        return _linear_of(x, w, bias, activation)
    x, w, bias = cast(x, w, bias)
    if not has_kernels(x, w, bias):
        wide = F.linear(x, w, bias)
        wide = wide if activation is None else ACTIVATIONS[activation](wide)
        return wide if out is None else out.copy_(wide)
    floats(x=x, w=w, bias=bias, out=out)
    dims("w", w, 2)
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise ValueError(f"bias: has shape {list(bias.shape)}, expected {[w.shape[0]]}")
    if out is None:
        return _linear_of(x, w, bias, activation)
    check_out(out, (*x.shape[:-1], w.shape[0]), x=x, w=w, bias=bias)
    return out.copy_(_linear_of(x, w, bias, activation))


def _fits_beside(bias: Tensor, w: Tensor) -> bool:
    """Whether a bias is one of a weight's."""
    same = bias.dtype == w.dtype and bias.device == w.device and bias.layout == torch.strided
    return same and bias.dim() == 1 and bias.shape[0] == w.shape[0]


def _linear_of(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """Of tensors that belong together."""
    flat, y = rows(x), None
    if x.ndim != 2 and not torch.compiler.is_compiling():  # matrices were tried before they came here
        y = _warplap.linear_direct(flat, w, bias, activation)
    if y is None:
        y = _layer(flat, w, bias)
        if activation is not None:
            y = ACTIVATIONS[activation](y)
    return y if x.ndim == 2 else y.reshape((*x.shape[:-1], w.shape[0]))
