"""``warplap.linear``: a product with its bias, the activation behind it, and what is added or multiplied then."""

from __future__ import annotations

import math
from typing import Any

from ... import _warplap
from ...arrays import numpy as arrays
from ...arrays.types import Array
from ...operator import autocast
from ...operator.activations import ACTIVATIONS, Activation
from ...operator.call.eager import PLAIN, is_compiling
from ...operator.call.fallback import kernel_or_torch
from ...operator.checks import check_activation, check_out, dims, floats, has_kernels, ordinary, wants
from ...operator.declare import Operator
from ...operator.layout import lines, rows
from ...operator.optional_torch import F, Tensor, torch
from ...operator.public import Public, compiling
from ...training.steps import Call, Steps
from .matmul import fit, product, sum_of_rows

_direct, _direct_joined = _warplap.linear_direct, _warplap.linear_joined


# The problem.


def check(x: Tensor, w: Tensor, bias: Tensor | None) -> None:
    """Whether shapes belong together."""
    dims("w", w, 2)
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise ValueError(f"bias: has shape {list(bias.shape)}, expected {[w.shape[0]]}")


def _check_joined(residual: Any, times: Any) -> None:
    if residual is not None and times is not None:
        raise ValueError("times: is given beside residual, expected one of them")


def problem(
    x: Any, w: Any, bias: Any = None, activation: str | None = None, residual: Any = None, times: Any = None,
    out: Any = None,
) -> str:  # fmt: skip
    """The problem that a call is, in its text form."""
    _check_joined(residual, times)
    flat = lambda t: t if t is None or t.ndim == 2 else t.reshape(-1, t.shape[-1])
    out = out if out is not None and out.ndim == 2 else None
    return _warplap.linear_problem(flat(x), w, bias, activation, out, flat(residual), flat(times))


# Over arrays.


def of_arrays(
    x: Any, w: Any, bias: Any, activation: str | None, out: Any = None, residual: Any = None, times: Any = None
) -> Any:
    _check_joined(residual, times)
    np = arrays.numpy()
    x, w = arrays.array(x, "x"), arrays.array(w, "w")
    bias = None if bias is None else arrays.array(bias, "bias")
    check(x, w, bias)
    bias = None if bias is None else np.ascontiguousarray(bias, dtype=x.dtype)
    check_activation(activation)
    shape, rows = (*x.shape[:-1], w.shape[0]), math.prod(x.shape[:-1])
    joins = [(name, t) for name, t in (("residual", residual), ("times", times)) if t is not None]
    for i, (name, other) in enumerate(joins):
        other = arrays.array(other, name)
        if other.shape != shape:
            raise ValueError(f"{name}: has shape {list(other.shape)}, expected {list(shape)}")
        if other.dtype != x.dtype:
            raise TypeError(f"{name}: holds {other.dtype}, expected {x.dtype} like x")
        joins[i] = name, np.ascontiguousarray(other).reshape(rows, w.shape[0])
    target = arrays.into(out, shape, x)
    if rows == 0 or w.shape[0] == 0:
        return target
    left = x.reshape(rows, x.shape[-1])
    if w.shape[1] == 0:  # nothing is added up: the same as one product of zeros
        left, w = np.zeros((rows, 1), x.dtype), np.zeros((w.shape[0], 1), x.dtype)
    left, w, with_it = arrays.plain(left), arrays.plain(w), dict(joins)
    write = lambda flat: _warplap.linear_into(left, w, bias, activation, flat, **with_it)
    return arrays.write(target, rows, w.shape[0], write)


# Over torch's tensors.


def finish(y: Tensor, activation: str | None, residual: Tensor | None = None, times: Tensor | None = None) -> Tensor:
    """What follows a product, by operators of torch's."""
    y = y if activation is None else ACTIVATIONS[activation](y)
    y = y if residual is None else y + residual
    return y if times is None else y * times


def _by_kernel(
    x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None = None, residual: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One product and what follows it, by whoever is fastest here and right; what no problem expresses goes to
    torch."""
    x, w = lines(x), lines(w)
    plain = lambda t: None if t is None else t.contiguous().resolve_neg()
    return kernel_or_torch(
        lambda: _warplap.linear_new(x, w, plain(bias), activation, plain(residual), plain(times)),
        lambda: finish(F.linear(x, w, bias), activation, residual, times),
        ordinary(x, w),
    )


def _shape(x: Tensor, w: Tensor, *more: Any) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[0]))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, w = ctx.saved_tensors
    needs_x, needs_w, needs_bias = ctx.needs_input_grad[:3]
    return (
        product(grad, w) if needs_x else None,
        product(grad.t(), x) if needs_w else None,
        sum_of_rows(grad) if needs_bias else None,
    )


def _at_once(
    x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, *others: Tensor | None
) -> Tensor | None:
    """At once, where nobody traces and no gradient is wanted."""
    if any(t is not None for t in others):
        return _direct_joined(x, w, bias, activation, *others)
    return _direct(x, w, bias, activation)


def finished_run(
    x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None = None, *others: Tensor | None
) -> Tensor:
    """One product and what follows it, of plain tensors that fit."""
    result = _at_once(x, w, bias, activation, *others)
    return _by_kernel(x, w, bias, activation, *others) if result is None else result


def _finished_autograd(
    keys: Any, x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, *others: Any
) -> Tensor:
    """The whole as one node of a graph, unless gradients are wanted: then it is the product and what follows, each with
    gradients of its own, so that the value before the activation is kept and nothing is computed twice. It is decided
    here because only torch's dispatcher knows for sure, under every tracer and transform."""
    if wants(x, w, bias, *others):
        return finish(LINEAR.call(x, w, bias), activation, *others)
    return FINISHED.below_autograd(keys, x, w, bias, activation, *others)  # type: ignore[no-any-return]


LINEAR = Operator(
    "linear(Tensor x, Tensor w, Tensor? bias) -> Tensor",
    finished_run, _shape, save=_save, backward=_backward, autocast=True,
)  # fmt: skip
FINISHED = Operator(
    "linear_finished(Tensor x, Tensor w, Tensor? bias, str? activation, Tensor? residual, Tensor? times) -> Tensor",
    finished_run, _shape, autograd=_finished_autograd, autocast=True,
)  # fmt: skip


def finished(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:
    """A layer of rows that belong together and what follows it: one problem where no gradient is wanted."""
    if not is_compiling():
        result = _at_once(x, w, bias, activation, residual, times)
        if result is not None:
            return result
    follows = activation is not None or residual is not None or times is not None
    if follows and not wants(x, w, bias, residual, times):
        return FINISHED.dispatched(x, w, bias, activation, residual, times)  # type: ignore[no-any-return]
    return finish(LINEAR.call(x, w, bias), activation, residual, times)


# Where gradients are wanted: straight to who won the whole step.


def linear_node(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """One node of torch's graph, of plain tensors that fit."""
    if x.ndim == 2:
        return LINEAR.node(x, w, bias)  # type: ignore[no-any-return]
    return LINEAR.node(rows(x), w, bias).reshape((*x.shape[:-1], w.shape[0]))  # type: ignore[no-any-return]


def _by_torch(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    y: Tensor = F.linear(x, w, bias)
    return y if activation is None else ACTIVATIONS[activation](y)


_steps = Steps(
    "train_linear", "xwb", lambda x, w, bias: _warplap.linear_problem(rows(x), w, bias), theirs=_by_torch
)


def trained(x: Any, w: Any, bias: Any, activation: str | None) -> Any:
    """The layer over plain tensors by whoever won; None where it is not for this way to compute."""
    return _steps.direct((x, w, bias), (activation,), _choose)


def _choose(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None) -> Call | None:
    if x.ndim == 0:
        return None
    tensors, facts = (x, w, bias), (activation,)
    if activation is None:
        return _steps.choose(tensors, facts, "none", linear_node, F.linear)
    finish = ACTIVATIONS.get(activation)
    if finish is None:
        return None
    own: Call = lambda x, w, bias: finish(linear_node(x, w, bias))
    theirs: Call = lambda x, w, bias: finish(F.linear(x, w, bias))
    return _steps.choose(tensors, facts, activation, own, theirs)


def of_tensors(
    x: Any, w: Any, bias: Any, activation: str | None, out: Tensor | None = None, residual: Tensor | None = None,
    times: Tensor | None = None,
) -> Any:  # fmt: skip
    if residual is not None or times is not None:
        return joined(x, w, bias, residual, times, activation, out)
    check_activation(activation)
    if out is None and fit(x, w) and x.shape[-1] == w.shape[1] and (bias is None or _fits_beside(bias, w)):
        return _linear_of(x, w, bias, activation)
    x, w, bias = autocast.cast(x, w, bias)
    if not has_kernels(x, w, bias):
        wide = finish(F.linear(x, w, bias), activation)
        return wide if out is None else out.copy_(wide)
    floats(x=x, w=w, bias=bias, out=out)
    check(x, w, bias)
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
    y = finished(rows(x), w, bias, activation)
    return y if x.ndim == 2 else y.reshape((*x.shape[:-1], w.shape[0]))


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
    _check_joined(residual, times)
    check_activation(activation)
    name, other = ("times", times) if residual is None else ("residual", residual)
    assert other is not None
    as_cast = autocast.cast(x, w, bias)
    # Where torch casts, what is joined stays as it is and the sum has the wider type, as with torch's own product.
    casts = any(a is not b for a, b in zip(as_cast, (x, w, bias))) and other.dtype != as_cast[0].dtype
    x, w, bias = as_cast
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
    plain = not is_compiling() and all(t is None or type(t) in PLAIN for t in (x, w, bias))
    result = trained(x, w, bias, activation) if plain else None
    return of_tensors(x, w, bias, activation) if result is None else result


_public = Public(torch=of_tensors, arrays=of_arrays, problem=problem, optional=("bias", "residual", "times", "out"))


@_public
def linear(
    x: Array,
    w: Array,
    bias: Array | None = None,
    activation: Activation | None = None,
    *,
    residual: Array | None = None,
    times: Array | None = None,
    out: Array | None = None,
) -> Array:
    """``activation(x @ w.T + bias)``: x of shape (..., k), w (n, k), bias (n,); then ``+ residual`` or ``* times``, one
    of them, of shape (..., n).

    ``activation`` is None, "relu", "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid". The product, its bias and, where
    no gradient is wanted, the activation and what is joined are one problem
    (``gemm:...,bias=true,act=gelu,join=add``).
    """
    if not compiling():
        if residual is not None or times is not None:
            if residual is None or times is None:
                result = _direct_joined(x, w, bias, activation, residual, times, out)
                if result is not None:
                    return result
        else:
            result = _direct(x, w, bias, activation, out)
            if result is not None:
                return result
            if out is None and type(x) in PLAIN and type(w) in PLAIN and (bias is None or type(bias) in PLAIN):
                result = trained(x, w, bias, activation)
                return of_tensors(x, w, bias, activation) if result is None else result
    tensors = {"x": x, "w": w, "bias": bias, "residual": residual, "times": times, "out": out}
    return _public.of(tensors, activation=activation)
