"""gated without torch: what a call asks of its tensors, its problem, and NumPy arrays."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from .. import _warplap
from ..arrays import numpy as arrays
from ..operator.problem_fields import ACTIVATIONS, DTYPES

JOINS = ("mul", "add")


class Lines(NamedTuple):
    """How rows lie: rows, elements of each, and elements from a row to the next in both tensors."""

    rows: int
    n: int
    lda: int
    ldb: int


def check(a: Any, b: Any, activation: str | None, join: str) -> None:
    """Whether shapes belong together, and words are known."""
    if activation is not None and activation not in ACTIVATIONS:
        raise arrays.unknown_activation(activation)
    if join not in JOINS:
        raise ValueError(f"join: is {join!r}, expected mul or add")
    if a.ndim == 0:
        raise ValueError("a: has 0 dimensions, expected 1 or more")
    if tuple(b.shape) != tuple(a.shape):
        raise ValueError(f"b: has shape {list(b.shape)}, expected {list(a.shape)} as a has")


@functools.lru_cache(maxsize=4096)
def call(lines: Lines, dtype: str, activation: str | None, join: str) -> _warplap.Prepared:
    """The call for rows that lie so, ready; ``dtype`` is the name that NumPy and torch have for it."""
    rows, n, lda, ldb = lines
    form = f"gated:rows={rows},n={n},dtype={DTYPES[dtype]},act={activation or 'none'},join={join},lda={lda},ldb={ldb}"
    return _warplap.Prepared(form)


def problem(a: Any, b: Any, activation: str | None = "silu", *, join: str = "mul", out: Any = None) -> str:
    """The problem that a call is, in its text form."""
    check(a, b, activation, join)
    rows, n = math.prod(a.shape[:-1]), a.shape[-1]
    dtype = str(a.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise TypeError(f"a: holds {a.dtype}, expected float32, float16 or bfloat16")
    return call(Lines(rows, n, _pitch(a, rows), _pitch(b, rows)), dtype, activation, join).problem


def _pitch(t: Any, rows: int) -> int:
    """Elements from a row to the next, where rows lie in one line and each is contiguous; else those of a copy."""
    n = int(t.shape[-1])
    strides = t.stride() if hasattr(t, "stride") else [s // t.itemsize for s in t.strides]
    if rows <= 1 or strides[-1] != 1 or strides[-2] < n:
        return n
    followed = all(strides[i] == strides[i + 1] * t.shape[i + 1] for i in range(t.ndim - 2) if t.shape[i] > 1)
    return int(strides[-2]) if followed else n


def of_arrays(a: Any, b: Any, activation: str | None, join: str, out: Any) -> Any:
    """Over NumPy arrays."""
    np = arrays.numpy()
    a, b = arrays.array(a, "a"), arrays.array(b, "b")
    check(a, b, activation, join)
    if a.dtype.name not in DTYPES:
        raise TypeError(f"a: holds {a.dtype}, expected float32 or float16")
    if b.dtype != a.dtype:
        raise TypeError(f"b: holds {b.dtype}, expected {a.dtype} like a")
    target = arrays.into(out, a.shape, a)
    if target.dtype != a.dtype:
        raise TypeError(f"out: holds {target.dtype}, expected {a.dtype} like a")
    rows, n = math.prod(a.shape[:-1]), a.shape[-1]
    if 0 in (rows, n):
        return target
    own = [np.ascontiguousarray(t).reshape(rows, n) for t in (a, b)]
    whole = target if target.flags.c_contiguous and not _overlaps(np, target, a, b) else np.empty(a.shape, a.dtype)
    call(Lines(rows, n, n, n), a.dtype.name, activation, join)(*own, whole.reshape(rows, n))
    if whole is not target:
        target[...] = whole
    return target


def _overlaps(np: Any, target: Any, *given: Any) -> bool:
    return any(np.may_share_memory(target, t) for t in given)
