"""Whose tensors a call was given: torch's or arrays; and torch's half of the operators, where torch is there."""

from __future__ import annotations

from typing import Any

torch_ops: Any = None  # the operators over its tensors

try:
    import torch
except ImportError:  # torch is optional: NumPy arrays need none of it
    torch = None  # type: ignore[assignment]
    PLAIN: frozenset[type] = frozenset()

    def compiling() -> bool:
        return False

else:
    # The other tracers bring tensors of their own or a mode, which the native half sees.
    from torch.compiler import is_dynamo_compiling as compiling

    from ..ops import by_torch_tensors as torch_ops  # type: ignore[no-redef]
    from .eager import PLAIN as PLAIN

_OPTIONAL = ("bias", "mask", "out", "lengths", "block_table", "cu_seqlens_k", "residual", "times")


def is_torch(**tensors: Any) -> bool:
    """Whether these are torch's; a mixture is an error. What may be left out may be None."""
    given = {n: t for n, t in tensors.items() if not (t is None and n in _OPTIONAL)}
    if torch is None or not any(isinstance(t, torch.Tensor) for t in given.values()):
        return False
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: is a {type(tensor).__name__}, expected tensors of one library")
    return True
