"""What torch's own operators do in place of ours: types that no kernel has, and mixed types under autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _warplap
from .library import FLOATS


def has_kernels(*tensors: Tensor | None) -> bool:
    """Whether the type of these is one that kernels have; a mixture is for others to refuse."""
    types = {t.dtype for t in tensors if t is not None}
    dense = all(t is None or t.layout == torch.strided for t in tensors)
    return not dense or len(types) != 1 or not types.isdisjoint(FLOATS)


def are_torchs(t: Tensor, *calls: _warplap.Prepared) -> bool:
    """Whether torch's own functions answer these calls on the tensor's device because nothing is decided: then a program
    gets the call that it would make itself, with torch's own gradients."""
    try:
        return all(call.is_torchs(t.device.index if t.is_cuda else None) for call in calls)
    except NotImplementedError:
        return False


def is_double(*tensors: Tensor | None) -> bool:
    """Whether all of these are in double precision, which is torch's to compute in."""
    return all(t is None or t.dtype == torch.float64 for t in tensors)


def cast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """The tensors in the type of an autocast region, as torch casts them for its own products."""
    device = next(t.device.type for t in tensors if t is not None)
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    to = torch.get_autocast_dtype(device)
    fits = lambda t: t is not None and t.is_floating_point() and t.dtype != torch.float64
    return tuple(t.to(to) if fits(t) else t for t in tensors)  # type: ignore[union-attr]
