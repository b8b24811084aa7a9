"""gated_linear without torch: what a call asks of shapes, its problem, and NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

from .. import _warplap
from ..arrays import numpy as arrays
from ..operator import problem_fields
from ..operator.prepared import prepared


def check(x: Any, w_gate: Any, w_up: Any) -> None:
    """Whether shapes belong together."""
    for name, w in (("w_gate", w_gate), ("w_up", w_up)):
        if w.ndim != 2:
            raise ValueError(f"{name}: has {w.ndim} dimensions, expected 2")
    if x.ndim == 0 or x.shape[-1] != w_gate.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w_gate.shape[1]} columns as w_gate has")
    if tuple(w_up.shape) != tuple(w_gate.shape):
        raise ValueError(f"w_up: has shape {list(w_up.shape)}, expected {list(w_gate.shape)} as w_gate has")


def pair(x: Any, w_gate: Any, w_up: Any, activation: str | None, out: Any = None) -> _warplap.Prepared | None:
    """The problem of matrices that belong together, ready to be called; None where the weights do not lie alike."""
    halves = [problem_fields.fields(_warplap.linear_problem(x, w, None, activation, out)) for w in (w_gate, w_up)]
    align = min(int(half.pop("align", 64)) for half in halves)
    if halves[0] != halves[1]:
        return None
    given = ",".join(f"{name}={value}" for name, value in halves[0].items())
    return prepared(f"gemm:{given},align={align},pair=true")


def problem(x: Any, w_gate: Any, w_up: Any, activation: str | None = "silu", *, out: Any = None) -> str:
    """The problem that a call is, in its text form; where it is two products, that of the last one."""
    check(x, w_gate, w_up)
    x = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    found = pair(x, w_gate, w_up, activation, out if out is not None and out.ndim == 2 else None)
    return f"{_warplap.linear_problem(x, w_gate, None, activation)},join=mul" if found is None else found.problem


def of_arrays(x: Any, w_gate: Any, w_up: Any, activation: str | None, out: Any) -> Any:
    """Over NumPy arrays."""
    x, w_gate, w_up = (arrays.array(a, name) for a, name in ((x, "x"), (w_gate, "w_gate"), (w_up, "w_up")))
    check(x, w_gate, w_up)
    for name, w in (("w_gate", w_gate), ("w_up", w_up)):
        if w.dtype != x.dtype:
            raise TypeError(f"{name}: holds {w.dtype}, expected {x.dtype} like x")
    if activation not in (None, *problem_fields.ACTIVATIONS):
        raise arrays.unknown_activation(activation)
    rows, (n, k) = math.prod(x.shape[:-1]), w_gate.shape
    if 0 in (rows, n, k):
        return _apart(x, w_gate, w_up, activation, out)
    left, gate, up = arrays.plain(x.reshape(rows, k)), arrays.plain(w_gate), arrays.plain(w_up)
    ready = pair(left, gate, up, activation)
    if ready is None:
        return _apart(x, gate, up, activation, out)
    target = arrays.into(out, (*x.shape[:-1], n), x)
    if target.dtype != x.dtype:
        raise TypeError(f"out: holds {target.dtype}, expected {x.dtype} like x")

    def write(flat: Any) -> None:
        found = pair(left, gate, up, activation, flat)
        assert found is not None
        found(left, gate.T, flat, None, None, up.T)

    return arrays.write(target, rows, n, write)


def _apart(x: Any, w_gate: Any, w_up: Any, activation: str | None, out: Any) -> Any:
    """As two products."""
    up = arrays.linear(x, w_up, None, None)
    return arrays.linear(x, w_gate, None, activation, out, times=up)
