"""NumPy arrays, and whatever shows its memory on the host as they do."""

from __future__ import annotations

from typing import Any, Callable


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
