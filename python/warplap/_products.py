"""matmul and linear over torch tensors: kernels, shapes under tracing, gradients."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _batched, _cuda, _warplap
from ._arrays import unknown_activation
from ._by_torch import cast, has_kernels
from ._library import check_out, dims, floats, lib, lines, op, ordinary, rows


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


@torch.library.register_fake("warplap::matmul", lib=lib)
def _matmul_fake(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]))


@torch.library.register_fake("warplap::matmul_out", lib=lib)
def _matmul_out_fake(a: Tensor, b: Tensor, out: Tensor) -> None:
    return None


def _save_pair(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    return (op.matmul(grad, b.t()) if needs_a else None, op.matmul(a.t(), grad) if needs_b else None)


torch.library.register_autograd("warplap::matmul", _matmul_backward, setup_context=_save_pair, lib=lib)


def matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
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
            out.copy_(op.matmul(left, right).reshape(shape))
        return out
    c = op.matmul(left, right)
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


@torch.library.register_fake("warplap::linear", lib=lib)
def _linear_fake(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[0]))


def _save_linear(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, w = ctx.saved_tensors
    needs_x, needs_w, needs_bias = ctx.needs_input_grad[:3]
    return (
        op.matmul(grad, w) if needs_x else None,
        op.matmul(grad.t(), x) if needs_w else None,
        grad.sum(0) if needs_bias else None,
    )


torch.library.register_autograd("warplap::linear", _linear_backward, setup_context=_save_linear, lib=lib)

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def linear(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None) -> Tensor:
    if activation is not None and activation not in _ACTIVATIONS:
        raise unknown_activation(activation)
    x, w, bias = cast(x, w, bias)
    if not has_kernels(x, w, bias):
        wide = F.linear(x, w, bias)
        wide = wide if activation is None else _ACTIVATIONS[activation](wide)
        return wide if out is None else out.copy_(wide)
    floats(x=x, w=w, bias=bias, out=out)
    dims("w", w, 2)
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise ValueError(f"bias: has shape {list(bias.shape)}, expected {[w.shape[0]]}")
    shape = (*x.shape[:-1], w.shape[0])
    if out is not None:
        check_out(out, shape, x=x, w=w, bias=bias)
    flat, y = rows(x), None
    if x.ndim != 2 and not torch.compiler.is_compiling():  # matrices were tried before they came here
        y = _warplap.linear_direct(flat, w, bias, activation)
    if y is None:
        y = op.linear(flat, w, bias)
        if activation is not None:
            y = _ACTIVATIONS[activation](y)
    y = y if y.shape == shape else y.reshape(shape)
    return y if out is None else out.copy_(y)
