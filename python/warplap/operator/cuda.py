"""The CUDA half of the door: the native kernels where they can go, and torch's own implementations."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from .. import _warplap
from .problem_fields import DTYPES
from .sparse_warning import sparse

_log = logging.getLogger("warplap")

# The types that kernels have, and what problems call them.
NAMES: dict[torch.dtype, str] = {getattr(torch, name): word for name, word in DTYPES.items()}
_told: set[str] = set()


def tell(who: str, why: Exception) -> None:
    """Says once why torch answers."""
    if str(why) not in _told:  # once is enough
        _told.add(str(why))
        _log.warning("%s answers: %s", who, why)


def matmul(a: Tensor, b: Tensor, out: Tensor) -> None:
    """``a @ b`` on the device, by the native kernels and cuBLASLt; torch's own where those cannot be had."""
    try:
        _warplap.matmul_into(a, b, out)
    except NotImplementedError as why:
        tell("torch.mm", why)
        torch.mm(a, b, out=out)


def aligned(t: Tensor) -> Tensor:
    """The tensor itself where the copy engine can fetch from it, a copy where it cannot."""
    return t if t.data_ptr() % 16 == 0 else t.clone()


def times(t: Tensor, by: Tensor) -> bool:
    """Multiplies a tensor without gaps in its own place with a tensor of one number, by a kernel that leaves it alone
    where that is one; whether it did."""
    if t.dtype not in NAMES or not t.is_contiguous() or not by.is_cuda or by.device != t.device:
        return False
    by = by.float()
    try:
        _warplap.times(t.data_ptr(), NAMES[t.dtype], t.numel(), by.data_ptr(), t.device.index or 0)
    except NotImplementedError as why:
        tell("torch", why)
        return False
    return True


def bsr_matmul(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor | None = None) -> Any:
    """Block-sparse times dense on the device, by the native kernels and torch's Triton kernel."""
    target = b.new_empty((m, b.shape[1])) if out is None else out
    if target.numel() == 0:
        return target
    whole = target if target.data_ptr() % 16 == 0 else torch.empty_like(target)
    values = aligned(values.contiguous())
    right = aligned(b if b.t().is_contiguous() else b.contiguous())
    try:
        _warplap.bsr_into(crow, col, values, m, k, right, whole)
    except NotImplementedError as why:
        tell("torch.sparse", why)
        return target.copy_(torch.mm(sparse(crow, col, values, (m, k)), b))
    return target if whole is target else target.copy_(whole)
