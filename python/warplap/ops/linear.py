"""linear over torch tensors, with what may follow the product: kernels, shapes under tracing, gradients."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _warplap
from ..operator import cuda
from ..arrays.numpy import unknown_activation
from ..operator.torch_fallback import cast, has_kernels
from ..operator.compile import compiled, fake
from ..operator.library import check_out, dims, floats, lib, lines, op, ordinary, rows, wants
from ..operator.eager import operator
from .matmul import fit, product, sum_of_rows


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def finish(y: Tensor, activation: str | None, residual: Tensor | None = None, times: Tensor | None = None) -> Tensor:
    """What follows a product, by operators of torch's."""
    y = y if activation is None else ACTIVATIONS[activation](y)
    y = y if residual is None else y + residual
    return y if times is None else y * times


def _linear(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    activation: str | None = None,
    residual: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:
    """One product and what follows it, by whoever is fastest here and right; what no problem expresses goes to torch."""
    x, w = lines(x), lines(w)
    if ordinary(x, w):
        plain = lambda t: None if t is None else t.contiguous().resolve_neg()
        try:
            return _warplap.linear_new(x, w, plain(bias), activation, plain(residual), plain(times))
        except NotImplementedError as why:
            cuda.tell("torch", why)
    return finish(F.linear(x, w, bias), activation, residual, times)


for _device in ("CPU", "CUDA"):
    lib.impl("linear", _linear, _device)
    lib.impl("linear_finished", _linear, _device)


def _linear_fake(x: Tensor, w: Tensor, *more: Any) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[0]))


fake("linear")(_linear_fake)
fake("linear_finished")(_linear_fake)


def _save_linear(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, w = ctx.saved_tensors
    needs_x, needs_w, needs_bias = ctx.needs_input_grad[:3]
    return (
        product(grad, w) if needs_x else None,
        product(grad.t(), x) if needs_w else None,
        sum_of_rows(grad) if needs_bias else None,
    )


def _direct(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, *others: Tensor | None) -> Tensor | None:
    """At once, where nobody traces and no gradient is wanted."""
    if any(t is not None for t in others):
        return _warplap.linear_joined(x, w, bias, activation, *others)
    return _warplap.linear_direct(x, w, bias, activation)


def finished_run(
    x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None = None, *others: Tensor | None
) -> Tensor:
    """One product and what follows it, of plain tensors that fit."""
    found = _direct(x, w, bias, activation, *others)
    return _linear(x, w, bias, activation, *others) if found is None else found


_layer, _layer_node = operator("linear", finished_run, _save_linear, _linear_backward)
compiled("linear_finished", finished_run)


def _finished_autograd(keys: Any, x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, *others: Any) -> Tensor:
    """The whole as one node of a graph, unless gradients are wanted: then it is the product and what follows, each with
    gradients of its own, so that the value before the activation is kept and nothing is computed twice. It is decided
    here because only torch's dispatcher knows for sure, under every tracer and transform."""
    if wants(x, w, bias, *others):
        return finish(_layer(x, w, bias), activation, *others)
    with torch._C._AutoDispatchBelowAutograd():
        below = keys & torch._C._after_autograd_keyset
        return op.linear_finished.default.redispatch(below, x, w, bias, activation, *others)  # type: ignore[no-any-return]


lib.impl("linear_finished", _finished_autograd, "Autograd", with_keyset=True)


def finished(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:
    """A layer of rows that belong together and what follows it: one problem where no gradient is wanted."""
    if not torch.compiler.is_compiling():
        found = _direct(x, w, bias, activation, residual, times)
        if found is not None:
            return found
    follows = activation is not None or residual is not None or times is not None
    if follows and not wants(x, w, bias, residual, times):
        return op.linear_finished.default(x, w, bias, activation, residual, times)  # type: ignore[no-any-return]
    return finish(_layer(x, w, bias), activation, residual, times)


def linear_node(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """One node of torch's graph, of plain tensors that fit."""
    if x.ndim == 2:
        return _layer_node(x, w, bias)  # type: ignore[no-any-return]
    return _layer_node(rows(x), w, bias).reshape((*x.shape[:-1], w.shape[0]))  # type: ignore[no-any-return]


def linear(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None) -> Tensor:
    if activation is not None and activation not in ACTIVATIONS:
        raise unknown_activation(activation)
    if out is None and fit(x, w) and x.shape[-1] == w.shape[1] and (bias is None or _fits_beside(bias, w)):
        return _linear_of(x, w, bias, activation)
    x, w, bias = cast(x, w, bias)
    if not has_kernels(x, w, bias):
        wide = finish(F.linear(x, w, bias), activation)
        return wide if out is None else out.copy_(wide)
    floats(x=x, w=w, bias=bias, out=out)
    check(x, w, bias)
    if out is None:
        return _linear_of(x, w, bias, activation)
    check_out(out, (*x.shape[:-1], w.shape[0]), x=x, w=w, bias=bias)
    return out.copy_(_linear_of(x, w, bias, activation))


def check(x: Tensor, w: Tensor, bias: Tensor | None) -> None:
    """Whether shapes belong together."""
    dims("w", w, 2)
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise ValueError(f"bias: has shape {list(bias.shape)}, expected {[w.shape[0]]}")


def _fits_beside(bias: Tensor, w: Tensor) -> bool:
    """Whether a bias is one of a weight's."""
    same = bias.dtype == w.dtype and bias.device == w.device and bias.layout == torch.strided
    return same and bias.dim() == 1 and bias.shape[0] == w.shape[0]


def _linear_of(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """Of tensors that belong together."""
    y = finished(rows(x), w, bias, activation)
    return y if x.ndim == 2 else y.reshape((*x.shape[:-1], w.shape[0]))
