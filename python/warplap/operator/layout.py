"""How tensors lie: what kernels take as it is, and copies of what they do not."""

from __future__ import annotations

import math
from typing import Any

from .optional_torch import Tensor, torch


def rows(t: Tensor) -> Tensor:
    """All but the last dimension as one."""
    return t if t.ndim == 2 else t.reshape(math.prod(t.shape[:-1]), t.shape[-1])


def lines(t: Tensor) -> Tensor:
    """The matrix itself where its rows or columns are contiguous, a copy where they are not."""
    (rows, columns), (down, right) = t.shape, t.stride()
    followed = (right == 1 and down >= columns) or (down == 1 and right >= rows)
    t = t if followed else t.contiguous()
    return t.resolve_neg() if t.is_neg() else t


def aligned(t: Tensor) -> Tensor:
    """The tensor itself where the copy engine can fetch from it, a copy where it cannot."""
    return t if t.data_ptr() % 16 == 0 else t.clone()


def kernel_input(t: Any) -> Any:
    """The tensor as kernels take it, if there is one: without gaps, on addresses that vectors may have."""
    if t is None:
        return None
    t = t.resolve_neg().contiguous()
    return aligned(t) if t.is_cuda else t


# Rows of ones, by length, type and device.
_ones: dict[tuple[Any, ...], Tensor] = {}


def ones(n: int, dtype: Any, device: Any) -> Tensor | None:
    """A row of so many ones that is kept, or None where what is made now would belong to a captured graph."""
    key = n, dtype, device
    line = _ones.get(key)
    if line is None:
        if torch.cuda.is_current_stream_capturing():
            return None
        if len(_ones) >= 16:
            _ones.clear()
        line = _ones[key] = torch.ones((1, n), dtype=dtype, device=device)
    return line
