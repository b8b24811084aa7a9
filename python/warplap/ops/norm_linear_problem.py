"""norm_linear without torch: its problem, and NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

from .. import _warplap
from ..arrays import numpy as arrays
from ..operator import problem_fields
from ..operator.prepared import prepared


def check(x: Any, w: Any, weight: Any, up: Any, bias: Any, **others: Any) -> tuple[int, ...]:
    """Whether shapes belong together; gives that of the answer."""
    if w.ndim != 2:
        raise ValueError(f"w: has {w.ndim} dimensions, expected 2")
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    shape = (*x.shape[:-1], w.shape[0])
    wanted = {"weight": (w.shape[1],), "up": w.shape, "bias": (w.shape[0],), **dict.fromkeys(others, shape)}
    for name, a in {"weight": weight, "up": up, "bias": bias, **others}.items():
        if a is not None and tuple(a.shape) != tuple(wanted[name]):
            raise ValueError(f"{name}: has shape {list(a.shape)}, expected {list(wanted[name])}")
    return shape


def text(
    x: Any, w: Any, up: Any, bias: Any, activation: str | None, residual: Any, times: Any, eps: float
) -> str | None:
    """The problem of matrices that belong together; None where two weights do not lie alike."""
    one = _warplap.linear_problem(x, w, bias, activation, None, residual, times)
    under = f",rms={eps:.9g}"
    if up is None:
        return one + under
    halves = [problem_fields.fields(one), problem_fields.fields(_warplap.linear_problem(x, up, bias, activation))]
    align = min(int(half.pop("align", 64)) for half in halves)
    if halves[0] != halves[1]:
        return None
    given = ",".join(f"{name}={value}" for name, value in halves[0].items())
    return f"gemm:{given},align={align},pair=true{under}"


def problem(
    x: Any, w: Any, weight: Any = None, bias: Any = None, activation: str | None = None, *,
    up: Any = None, residual: Any = None, times: Any = None, eps: float = 1e-6,
) -> str:  # fmt: skip
    """The problem that a call is, in its text form."""
    flat = lambda t: t if t is None or t.ndim == 2 else t.reshape(-1, t.shape[-1])
    found = text(flat(x), w, up, bias, activation, flat(residual), flat(times), eps)
    if found is None:
        raise ValueError("up: does not lie as w does; the call is a norm and two products")
    return found


def of_arrays(
    x: Any, w: Any, weight: Any, bias: Any, activation: str | None, up: Any, residual: Any, times: Any, eps: float
) -> Any:
    """Over NumPy arrays."""
    given = {"x": x, "w": w, "weight": weight, "bias": bias, "up": up, "residual": residual, "times": times}
    whole = arrays.numpy().ascontiguousarray
    given = {name: None if a is None else whole(arrays.array(a, name)) for name, a in given.items()}
    x, w, weight = given["x"], given["w"], given["weight"]
    shape = check(**given)
    for name, a in given.items():
        if a is not None and a.dtype != x.dtype:
            raise TypeError(f"{name}: holds {a.dtype}, expected {x.dtype} like x")
    fold = lambda a: a if a is None or weight is None else a * weight
    rows, (n, k) = math.prod(x.shape[:-1]), w.shape
    flat = lambda a, columns: None if a is None else a.reshape(rows, columns)
    left, right, second = flat(x, k), fold(w), fold(given["up"])
    residual, times = flat(given["residual"], n), flat(given["times"], n)
    asked = text(left, right, second, given["bias"], activation, residual, times, eps)
    assert asked is not None
    target = arrays.into(None, shape, x)
    turned = None if second is None else second.T
    other = times if residual is None else residual
    write = lambda to: prepared(asked)(left, right.T, to, given["bias"], other, turned, None)
    return arrays.write(target, rows, n, write)
