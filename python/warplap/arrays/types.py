"""The types of arguments: whatever shows its memory as arrays do (torch, NumPy, CuPy, JAX)."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar


class SupportsArray(Protocol):
    """A tensor or an array of any library."""

    def __dlpack__(self) -> Any: ...


Array = TypeVar("Array", bound=SupportsArray)
