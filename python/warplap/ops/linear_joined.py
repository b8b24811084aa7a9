"""linear joined with one more tensor over torch's: a residual that is added, or what a gate lets through."""

from __future__ import annotations

import torch
from torch import Tensor

from ..training import products
from ..arrays.numpy import unknown_activation
from ..operator.torch_fallback import cast, has_kernels
from .linear import ACTIVATIONS, check, finish, finished, linear
from ..operator.library import check_out, floats, rows, wants
from ..operator.eager import PLAIN


def joined(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    times: Tensor | None,
    activation: str | None,
    out: Tensor | None = None,
) -> Tensor:
    """``activation(x @ w.T + bias)`` plus a residual, or times another; one of them is given."""
    if activation is not None and activation not in ACTIVATIONS:
        raise unknown_activation(activation)
    name, other = ("times", times) if residual is None else ("residual", residual)
    assert other is not None
    given = cast(x, w, bias)
    # Where torch casts, what is joined stays as it is and the sum has the wider type, as with torch's own product.
    casts = any(a is not b for a, b in zip(given, (x, w, bias))) and other.dtype != given[0].dtype
    x, w, bias = given
    ours = has_kernels(x, w, bias)
    if ours:
        floats(x=x, w=w, bias=bias)
    check(x, w, bias)
    shape = (*x.shape[:-1], w.shape[0])
    if tuple(other.shape) != shape:
        raise ValueError(f"{name}: has shape {list(other.shape)}, expected {list(shape)}")
    if ours and not casts:
        floats(x=x, **{name: other})
    if out is not None:
        floats(**{name: other, "out": out}) if ours else None
        check_out(out, shape, x=x, w=w, bias=bias, **{name: other})
    if ours and not casts and not wants(x, w, bias, other):
        flat = [None if t is None else rows(t) for t in (residual, times)]
        y = finished(rows(x), w, bias, activation, *flat)
        y = y if x.ndim == 2 else y.reshape(shape)
    else:
        y = finish(layer(x, w, bias, activation), None, residual, times)
    return y if out is None else out.copy_(y)


def layer(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """A layer alone: in a plain program by whoever won the step."""
    plain = not torch.compiler.is_compiling() and all(t is None or type(t) in PLAIN for t in (x, w, bias))
    found = products.linear(x, w, bias, activation) if plain else None
    return linear(x, w, bias, activation, None) if found is None else found
