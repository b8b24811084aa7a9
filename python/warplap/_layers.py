"""linear over torch tensors: kernels, shapes under tracing, gradients."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _cuda, _warplap
from ._arrays import unknown_activation
from ._by_torch import cast, has_kernels
from ._compiled import fake
from ._library import check_out, dims, floats, lib, lines, ordinary, rows
from ._nodes import operator
from ._products import fit, product, sum_of_rows


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
        product(grad, w) if needs_x else None,
        product(grad.t(), x) if needs_w else None,
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
    if out is None and fit(x, w) and x.shape[-1] == w.shape[1] and (bias is None or _fits_beside(bias, w)):
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
