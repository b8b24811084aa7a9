"""``warplap.gated_linear``: ``activation(x @ w_gate.T) * (x @ w_up.T)``. One product with two weights where no gradient
is wanted, else two layers of which each has gradients of its own."""

from __future__ import annotations

import math
from typing import Any

from ... import _warplap
from ...arrays import numpy as arrays
from ...arrays.types import Array
from ...operator import autocast
from ...operator.activations import Activation
from ...operator.call.call_cache import layout_call, prepared
from ...operator.call.direct import Direct, Plan
from ...operator.call.eager import is_plain
from ...operator.call.fallback import kernel_or_none
from ...operator.checks import check_activation, check_out, floats, has_kernels, ordinary, wants
from ...operator.declare import Operator
from ...operator.layout import lines, rows
from ...operator.optional_torch import F, Tensor
from ...operator.problem_text import fields
from ...operator.public import Public, compiling
from . import linear as layer

# The problem.


def _check(x: Any, w_gate: Any, w_up: Any) -> None:
    """Whether shapes belong together."""
    for name, w in (("w_gate", w_gate), ("w_up", w_up)):
        if w.ndim != 2:
            raise ValueError(f"{name}: has {w.ndim} dimensions, expected 2")
    if x.ndim == 0 or x.shape[-1] != w_gate.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w_gate.shape[1]} columns as w_gate has")
    if tuple(w_up.shape) != tuple(w_gate.shape):
        raise ValueError(f"w_up: has shape {list(w_up.shape)}, expected {list(w_gate.shape)} as w_gate has")


def _pair(x: Any, w_gate: Any, w_up: Any, activation: str | None, out: Any = None) -> _warplap.Prepared | None:
    """The problem of matrices that belong together, ready to be called; None where the weights do not lie alike."""
    halves = [fields(_warplap.linear_problem(x, w, None, activation, out)) for w in (w_gate, w_up)]
    align = min(int(half.pop("align", 64)) for half in halves)
    if halves[0] != halves[1]:
        return None
    inputs = ",".join(f"{name}={value}" for name, value in halves[0].items())
    return prepared(f"gemm:{inputs},align={align},pair=true")


def _problem(x: Any, w_gate: Any, w_up: Any, activation: str | None = "silu", out: Any = None) -> str:
    """Where it is two products, that of the last one."""
    _check(x, w_gate, w_up)
    x = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    result = _pair(x, w_gate, w_up, activation, out if out is not None and out.ndim == 2 else None)
    return f"{_warplap.linear_problem(x, w_gate, None, activation)},join=mul" if result is None else result.problem


# Over arrays.


def _of_arrays(x: Any, w_gate: Any, w_up: Any, activation: str | None, out: Any) -> Any:
    """Over NumPy arrays."""
    x, w_gate, w_up = (arrays.array(a, name) for a, name in ((x, "x"), (w_gate, "w_gate"), (w_up, "w_up")))
    _check(x, w_gate, w_up)
    for name, w in (("w_gate", w_gate), ("w_up", w_up)):
        if w.dtype != x.dtype:
            raise TypeError(f"{name}: holds {w.dtype}, expected {x.dtype} like x")
    check_activation(activation)
    count, (n, k) = math.prod(x.shape[:-1]), w_gate.shape
    if 0 in (count, n, k):
        return _arrays_apart(x, w_gate, w_up, activation, out)
    left, gate, up = arrays.plain(x.reshape(count, k)), arrays.plain(w_gate), arrays.plain(w_up)
    ready = _pair(left, gate, up, activation)
    if ready is None:
        return _arrays_apart(x, gate, up, activation, out)
    target = arrays.into(out, (*x.shape[:-1], n), x)
    if target.dtype != x.dtype:
        raise TypeError(f"out: holds {target.dtype}, expected {x.dtype} like x")

    def write(flat: Any) -> None:
        result = _pair(left, gate, up, activation, flat)
        assert result is not None
        result(left, gate.T, flat, None, None, up.T)

    return arrays.write(target, count, n, write)


def _arrays_apart(x: Any, w_gate: Any, w_up: Any, activation: str | None, out: Any) -> Any:
    """As two products."""
    up = layer.of_arrays(x, w_up, None, None)
    return layer.of_arrays(x, w_gate, None, activation, out, times=up)


# Over torch's tensors.


@layout_call
def _call(
    x: Tensor, w_gate: Tensor, w_up: Tensor, out: Tensor | None, activation: str | None
) -> _warplap.Prepared | None:
    """The call for matrices; None where it is none: weights that do not lie alike, or sizes that are torch's."""
    one_problem = w_up.shape == w_gate.shape and ordinary(x, w_gate)
    return _pair(x, w_gate, w_up, activation, out) if one_problem else None


def _plan(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None) -> Plan | None:
    flat = x.view(-1, x.shape[-1])
    ready = _call((flat, w_gate, w_up, None), activation)
    if ready is None:
        return None
    slots = (0, flat), (1, w_gate.t()), None, None, None, (2, w_up.t())
    return Plan(ready, slots, None if x.ndim == 2 else ((*x.shape[:-1], w_gate.shape[0]),))


_direct = Direct(_plan).call


def _run(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None) -> Tensor:
    """Of matrices, by whoever is fastest here and right; what no problem expresses is two products."""
    result = _direct((x, w_gate, w_up), (activation,))
    if result is not None:
        return result  # type: ignore[no-any-return]
    x, w_gate, w_up = lines(x), lines(w_gate), lines(w_up)
    ready = _call((x, w_gate, w_up, None), activation)
    if ready is not None:
        result = kernel_or_none(lambda: ready(x, w_gate.t(), None, None, None, w_up.t()))
        if result is not None:
            return result  # type: ignore[no-any-return]
    return layer.finished_run(x, w_gate, None, activation, None, layer.finished_run(x, w_up, None))


def _autograd(keys: Any, x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None) -> Tensor:
    """One node of a graph, unless gradients are wanted: then two layers and their product, so that nothing is computed
    twice. Only torch's dispatcher knows for sure which it is, under every tracer and transform."""
    if wants(x, w_gate, w_up):
        return layer.finished(x, w_gate, None, activation) * layer.finished(x, w_up, None, None)
    return GATED_LINEAR.below_autograd(keys, x, w_gate, w_up, activation)  # type: ignore[no-any-return]


GATED_LINEAR = Operator(
    "gated_linear(Tensor x, Tensor w_gate, Tensor w_up, str? activation) -> Tensor",
    _run, lambda x, w_gate, *more: x.new_empty((x.shape[0], w_gate.shape[0])), autograd=_autograd, autocast=True,
)  # fmt: skip


def of_tensors(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None, out: Tensor | None = None) -> Tensor:
    check_activation(activation)
    x, w_gate, w_up = autocast.cast(x, w_gate, w_up)
    ours = has_kernels(x, w_gate, w_up)
    if ours:
        floats(x=x, w_gate=w_gate, w_up=w_up, out=out)
    _check(x, w_gate, w_up)
    shape = (*x.shape[:-1], w_gate.shape[0])
    if out is not None:
        check_out(out, shape, x=x, w_gate=w_gate, w_up=w_up)
        if ours and _written(x, w_gate, w_up, activation, out):
            return out
    if not ours:
        y = layer.finish(F.linear(x, w_gate), activation) * F.linear(x, w_up)
    elif wants(x, w_gate, w_up):
        y = layer.layer(x, w_gate, None, activation) * layer.layer(x, w_up, None, None)
    else:
        y = GATED_LINEAR.dispatched(rows(x), w_gate, w_up, activation)
        y = y if x.ndim == 2 else y.reshape(shape)
    return y if out is None else out.copy_(y)


def _written(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None, out: Tensor) -> bool:
    """Whether a plain call could write into the caller's memory."""
    if not is_plain(x, w_gate, w_up, out):
        return False
    flat, to = lines(rows(x)), rows(out)
    if to.stride(1) != 1 or to.data_ptr() != out.data_ptr() or out.is_neg():
        return False
    try:
        ready = _call((flat, w_gate, w_up, to), activation)
        if ready is not None:
            ready(flat, w_gate.t(), to, None, None, w_up.t())
    except (ValueError, NotImplementedError):  # lines with gaps between their elements, among others
        return False
    return ready is not None


_public = Public(torch=of_tensors, arrays=_of_arrays, problem=_problem, optional=("out",))


@_public
def gated_linear(
    x: Array, w_gate: Array, w_up: Array, activation: Activation | None = "silu", *, out: Array | None = None
) -> Array:
    """``activation(x @ w_gate.T) * (x @ w_up.T)``: x of shape (..., k), both weights (n, k). The gated half of a layer
    (SwiGLU with the default).

    ``activation`` is one of those of :func:`linear`. Where no gradient is wanted, it is one
    product that reads x once (``gemm:...,act=silu,pair=true``); the weights stay two tensors, which lie alike.
    """
    if out is None and not compiling():
        result = _direct((x, w_gate, w_up), (activation,))
        if result is not None:
            return result
    return _public.of({"x": x, "w_gate": w_gate, "w_up": w_up, "out": out}, activation=activation)
