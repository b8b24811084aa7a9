"""torch where it is installed: NumPy arrays need none of it, so whatever uses torch takes it from here."""

from __future__ import annotations

from typing import Any

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
except ImportError:
    torch = None  # type: ignore[assignment]
    F = None  # type: ignore[assignment]
    Tensor = Any  # type: ignore[assignment, misc]

__all__ = ["F", "Tensor", "torch"]
