"""The operators over NumPy arrays and whatever shows its memory as they do."""

from __future__ import annotations

import math
from typing import Any, Callable

from .. import _warplap
from ..operator.problem_fields import ACTIVATIONS


def numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise TypeError("expected torch tensors or NumPy arrays, and neither library is installed") from None
    return numpy


def array(value: Any, name: str) -> Any:
    np = numpy()
    shows = ("__array_interface__", "__dlpack__", "__cuda_array_interface__")
    if not any(hasattr(value, s) for s in shows):
        raise TypeError(f"{name}: expected a tensor or an array, found {type(value).__name__}")
    if hasattr(value, "__cuda_array_interface__"):
        raise ValueError(f"{name}: is on a CUDA device, expected all arrays on the host as the first one")
    if isinstance(value, np.ndarray):
        return value
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)


def plain(matrix: Any) -> Any:
    """The matrix itself where its lines are contiguous, a copy where they are not."""
    np = numpy()
    steps = [s // max(matrix.itemsize, 1) for s in matrix.strides]
    rows, columns = matrix.shape
    if (steps[1] == 1 and steps[0] >= columns) or (steps[0] == 1 and steps[1] >= rows):
        return matrix
    return np.ascontiguousarray(matrix)


def into(out: Any, shape: tuple[int, ...], like: Any) -> Any:
    np = numpy()
    if out is None:
        return np.empty(shape, dtype=like.dtype)
    out = array(out, "out")
    if out.shape != shape:
        raise ValueError(f"out: has shape {list(out.shape)}, expected {list(shape)}")
    return out


def write(target: Any, rows: int, columns: int, fill: Callable[[Any], None]) -> Any:
    """Lets a matrix be written that is the target's memory, or becomes it."""
    np = numpy()
    flat = target.reshape(rows, columns)
    if not np.shares_memory(flat, target):
        flat = np.empty_like(flat)
    fill(flat)
    if not np.shares_memory(flat, target):
        target[...] = flat.reshape(target.shape)
    return target


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    a, b = array(a, "a"), array(b, "b")
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"{'a' if a.ndim == 0 else 'b'}: has 0 dimensions, expected 1 or more")
    # Batches on both sides, and types that no kernel has, are NumPy's own.
    if b.ndim > 2 or (a.dtype == b.dtype and a.dtype.kind in "fiuc" and a.dtype.name not in ("float32", "float16")):
        return numpy().matmul(a, b, out=None if out is None else array(out, "out"))
    lead, column = a.shape[:-1], b.ndim == 1
    right = b[:, None] if column else b
    if a.shape[-1] != right.shape[0]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {a.shape[-1]} rows as a has columns")
    target = into(out, lead if column else (*lead, right.shape[1]), a)
    rows = math.prod(lead)
    if 0 in (rows, *right.shape):
        target[...] = 0
        return target
    left, right = plain(a.reshape(rows, a.shape[-1])), plain(right)
    return write(target, rows, right.shape[1], lambda flat: _warplap.matmul_into(left, right, flat))


def linear(
    x: Any, w: Any, bias: Any, activation: str | None, out: Any = None, residual: Any = None, times: Any = None
) -> Any:
    np = numpy()
    x, w = array(x, "x"), array(w, "w")
    if w.ndim != 2:
        raise ValueError(f"w: has {w.ndim} dimensions, expected 2")
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    if bias is not None:
        bias = array(bias, "bias")
        if bias.shape != (w.shape[0],):
            raise ValueError(f"bias: has shape {list(bias.shape)}, expected {[w.shape[0]]}")
        bias = np.ascontiguousarray(bias, dtype=x.dtype)
    if activation is not None and activation not in ACTIVATIONS:
        raise unknown_activation(activation)
    shape, rows = (*x.shape[:-1], w.shape[0]), math.prod(x.shape[:-1])
    joins = [(name, t) for name, t in (("residual", residual), ("times", times)) if t is not None]
    for i, (name, other) in enumerate(joins):
        other = array(other, name)
        if other.shape != shape:
            raise ValueError(f"{name}: has shape {list(other.shape)}, expected {list(shape)}")
        if other.dtype != x.dtype:
            raise TypeError(f"{name}: holds {other.dtype}, expected {x.dtype} like x")
        joins[i] = name, np.ascontiguousarray(other).reshape(rows, w.shape[0])
    target = into(out, shape, x)
    if rows == 0 or w.shape[0] == 0:
        return target
    left = x.reshape(rows, x.shape[-1])
    if w.shape[1] == 0:  # nothing is added up: the same as one product of zeros
        left, w = np.zeros((rows, 1), x.dtype), np.zeros((w.shape[0], 1), x.dtype)
    left, w, with_it = plain(left), plain(w), dict(joins)
    return write(target, rows, w.shape[0], lambda flat: _warplap.linear_into(left, w, bias, activation, flat, **with_it))


def unknown_activation(activation: object) -> ValueError:
    known = "None, relu, gelu, gelu_tanh, silu, tanh or sigmoid"
    return ValueError(f"activation: is {activation!r}, expected {known}")


def attention(
    q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float | None, enable_gqa: bool, out: Any
) -> Any:
    np = numpy()
    q, k, v = array(q, "q"), array(k, "k"), array(v, "v")
    for name, given in (("q", q), ("k", k), ("v", v)):
        if given.ndim not in (3, 4):
            raise ValueError(f"{name}: has {given.ndim} dimensions, expected 3 (heads, positions, d) or 4")
    four = [a[None] if a.ndim == 3 else a for a in (q, k, v)]
    if four[0].shape[1] != four[1].shape[1] and not enable_gqa:
        heads = four[0].shape[1]
        raise ValueError(f"k: has {four[1].shape[1]} heads, expected {heads} as q has; or say enable_gqa=True")
    if mask is not None:
        if is_causal:
            raise ValueError("mask: is given with is_causal, expected one of them")
        mask = array(mask, "mask")
        if mask.dtype == np.bool_:
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        mask = np.ascontiguousarray(np.broadcast_to(mask, (q.shape[-2], k.shape[-2])), dtype=q.dtype)
    target = into(out, (*q.shape[:-1], v.shape[-1]), q)
    whole = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
    four = [np.ascontiguousarray(a) for a in four]
    q4, k4, v4 = four
    _warplap.attention_into(q4, k4, v4, mask, is_causal, scale, whole[None] if whole.ndim == 3 else whole)
    if whole is not target:
        target[...] = whole
    return target


def bsr_matmul(a: Any, b: Any, out: Any = None) -> Any:
    np = numpy()
    if not (hasattr(a, "indptr") and hasattr(a, "indices") and hasattr(a, "blocksize")):
        found = type(a).__name__
        raise TypeError(f"a: expected a torch tensor of layout sparse_bsr or a SciPy bsr_array, found {found}")
    b = array(b, "b")
    if b.ndim not in (1, 2):
        raise ValueError(f"b: has {b.ndim} dimensions, expected 1 or 2")
    if not a.has_sorted_indices:
        a = a.sorted_indices()
    right = b[:, None] if b.ndim == 1 else b
    m, k = a.shape
    target = into(out, (m, *b.shape[1:]), right)
    flat = target.reshape(m, -1) if target.flags.c_contiguous else np.empty((m, right.shape[1]), target.dtype)
    values = np.ascontiguousarray(a.data)
    _warplap.bsr_into(a.indptr, a.indices, values, m, k, np.ascontiguousarray(right), flat)
    if not np.shares_memory(flat, target):
        target[...] = flat.reshape(target.shape)
    return target
