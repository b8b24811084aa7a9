"""softmax and cross_entropy without torch: the problem of a call, ready to be called."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, Sequence

from .. import _warplap
from ..arrays import numpy as arrays
from ..operator.problem_fields import DTYPES

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")
_LABELS = {"int64": "i64", "int32": "i32"}


def _named(dtype: Any, known: dict[str, str], what: str) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in known:
        raise TypeError(f"{what}: holds {name}, expected {' or '.join(known)}")
    return known[name]


@functools.lru_cache(maxsize=4096)
def softmax_call(shape: Sequence[int], dtype: Any, scale: float, mask: int, each: int) -> _warplap.Prepared:
    """The call for rows of a shape with so many rows of a mask, ready."""
    form = f"softmax:rows={math.prod(shape[:-1])},n={shape[-1]},dtype={_named(dtype, DTYPES, 'x')},scale={scale!r}"
    return _warplap.Prepared(f"{form},mask={mask},each={each}" if mask else form)


@functools.lru_cache(maxsize=4096)
def softmax_grad_call(shape: Sequence[int], dtype: Any, scale: float) -> _warplap.Prepared:
    """The call for the gradient of rows of a shape, ready."""
    dtype = _named(dtype, DTYPES, "x")
    return _warplap.Prepared(f"softmax_grad:rows={math.prod(shape[:-1])},n={shape[-1]},dtype={dtype},scale={scale!r}")


@functools.lru_cache(maxsize=4096)
def entropy_call(
    rows: int, n: int, dtype: Any, labels: Any, grad: bool, kept: bool, mean: bool, ignore: int, smoothing: float,
    zloss: float,
) -> _warplap.Prepared:  # fmt: skip
    """The call for so many rows, ready. The gradient takes the logits' place, unless they are kept."""
    given = f"rows={rows},n={n},dtype={_named(dtype, DTYPES, 'logits')},labels={_named(labels, _LABELS, 'labels')}"
    rest = f"grad={str(grad).lower()},kept={str(kept).lower()},reduction={'mean' if mean else 'sum'},ignore={ignore}"
    return _warplap.Prepared(f"cross_entropy:{given},{rest},smoothing={smoothing!r},zloss={zloss!r}")


def shared(shape: Sequence[int], mask: Sequence[int]) -> tuple[int, int] | None:
    """How rows of a shape share those of a mask that is spread over them: the mask's rows, and how many rows one after
    another have the same one. None where no problem says it, and the mask is to be written out."""
    if len(mask) > len(shape) or not mask or mask[-1] != shape[-1]:
        return None
    lead, over = list(shape[:-1]), [1] * (len(shape) - len(mask)) + list(mask[:-1])
    if any(m not in (1, n) for m, n in zip(over, lead)):
        return None
    own = [i for i, m in enumerate(over) if m != 1]
    if not own:
        return 1, 1
    first, last = own[0], own[-1]
    if over[first : last + 1] != lead[first : last + 1]:
        return None
    return math.prod(over), math.prod(lead[last + 1 :])


def check_softmax(x: Any, mask: Any, scale: float) -> None:
    """Whether shapes belong together, and the rest is what there is."""
    if x.ndim == 0:
        raise ValueError("x: has 0 dimensions, expected 1 or more")
    if not math.isfinite(scale):
        raise ValueError(f"scale: is {scale}, expected a finite number")
    if mask is not None:
        fits = mask.ndim <= x.ndim and all(m in (1, n) for m, n in zip(mask.shape[::-1], x.shape[::-1]))
        if not fits:
            raise ValueError(f"mask: has shape {list(mask.shape)}, expected one that spreads over {list(x.shape)}")


def softmax_problem(x: Any, mask: Any = None, *, scale: float = 1.0) -> str:
    """The problem that a call is, in its text form."""
    check_softmax(x, mask, scale)
    rows, each = (0, 1) if mask is None else shared(x.shape, mask.shape) or (math.prod(x.shape[:-1]), 1)
    return softmax_call(tuple(x.shape), x.dtype, float(scale), rows, each).problem


def check_entropy(logits: Any, labels: Any, smoothing: float, zloss: float, reduction: str) -> None:
    """Whether shapes belong together, and the rest is what there is."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction: is {reduction!r}, expected 'mean', 'sum' or 'none'")
    for name, value in (("label_smoothing", smoothing), ("z_loss", zloss)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}: is {value}, expected a number from 0 to 1")
    if logits.ndim == 0:
        raise ValueError("logits: has 0 dimensions, expected 1 or more")
    if tuple(labels.shape) != tuple(logits.shape[:-1]):
        raise ValueError(f"labels: has shape {list(labels.shape)}, expected {list(logits.shape[:-1])}")


def entropy_problem(
    logits: Any, labels: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0,
    reduction: Reduction = "mean", inplace: bool = False,
) -> str:  # fmt: skip
    """The problem that a call is, in its text form."""
    check_entropy(logits, labels, label_smoothing, z_loss, reduction)
    grad = bool(getattr(logits, "requires_grad", False))
    kept = grad and not (inplace and not logits.is_leaf)
    numbers = int(ignore_index), float(label_smoothing), float(z_loss)
    rows, n = math.prod(logits.shape[:-1]), logits.shape[-1]
    return entropy_call(rows, n, logits.dtype, labels.dtype, grad, kept, reduction == "mean", *numbers).problem


def softmax_direct(x: Any, mask: Any, scale: float, each: int = 1) -> Any:
    """At once, over torch's plain tensors that nobody wants a gradient of; None for everything else."""
    shape = x.shape
    try:
        call = softmax_call(shape, x.dtype, scale, 0 if mask is None else mask.shape[0], each)
        flat = x if len(shape) == 2 else x.view(-1, shape[-1])
    except (RuntimeError, TypeError, ValueError, IndexError):  # the general way copies, says what is wrong, or goes to torch
        return None
    found = call.direct(flat, mask)
    return found if found is None or len(shape) == 2 else found.view(shape)


def entropy_direct(logits: Any, labels: Any, *numbers: Any) -> Any:
    """Losses, log-sum-exps and their total at once, over torch's plain tensors that nobody wants a gradient of; None for
    everything else."""
    try:
        rows, n = logits.shape
        call = entropy_call(rows, n, logits.dtype, labels.dtype, False, False, *numbers)
    except (TypeError, ValueError, IndexError, AttributeError):  # the general way says what is wrong, or goes to torch
        return None
    return call.direct(logits, labels)


def softmax_of_arrays(x: Any, mask: Any, scale: float) -> Any:
    """Over NumPy arrays."""
    np = arrays.numpy()
    x = arrays.array(x, "x")
    mask = None if mask is None else arrays.array(mask, "mask")
    check_softmax(x, mask, scale)
    y = np.empty(x.shape, x.dtype)
    if x.size:
        rows, each, flat = 0, 1, lambda a: np.ascontiguousarray(a).reshape(-1, x.shape[-1])
        if mask is not None:
            found = shared(x.shape, mask.shape)
            if found is None:
                mask, found = np.broadcast_to(mask, x.shape), (x.size // x.shape[-1], 1)
            rows, each = found
            mask = flat(mask.astype(x.dtype, copy=False))
        softmax_call(x.shape, x.dtype, scale, rows, each)(flat(x), mask, y.reshape(-1, x.shape[-1]))
    return y


def entropy_of_arrays(
    logits: Any, labels: Any, ignore: int, smoothing: float, zloss: float, reduction: Reduction
) -> Any:
    """Over NumPy arrays."""
    np = arrays.numpy()
    logits, labels = arrays.array(logits, "logits"), arrays.array(labels, "labels")
    check_entropy(logits, labels, smoothing, zloss, reduction)
    rows, n = labels.size, logits.shape[-1]
    loss, lse, total = (np.empty(size, np.float32) for size in (rows, rows, 1))
    if not logits.size:
        total[...] = 0.0 if reduction == "sum" else np.nan
    else:
        numbers = ignore, smoothing, zloss
        call = entropy_call(rows, n, logits.dtype, labels.dtype, False, False, reduction == "mean", *numbers)
        call(np.ascontiguousarray(logits).reshape(rows, n), np.ascontiguousarray(labels).reshape(-1), loss, lse, total)
    return loss.reshape(labels.shape) if reduction == "none" else total[0]
