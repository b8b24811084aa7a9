"""What a template gives, and what every template asks of nodes."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import torch

from .words import value

# torch's own type of what a node is given is a union of nineteen, of which nothing follows.
Node = Any

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class Found:
    """Nodes that one call computes."""

    template: str
    nodes: tuple[Node, ...]
    gives: tuple[Node, ...]
    """What the call returns, in its order; a single one is returned as it is."""
    call: Callable[..., Any]
    args: tuple[Any, ...]


def is_float(node: Any) -> bool:
    found = value(node)
    return found is not None and found.dtype in _FLOATS and found.layout == torch.strided and found.ndim > 0


def alike(a: Any, b: Any) -> bool:
    """Whether two nodes give tensors of one type and size."""
    x, y = value(a), value(b)
    return x is not None and y is not None and x.dtype == y.dtype and x.shape == y.shape


def dtype_of(node: Any) -> Any:
    found = value(node)
    return None if found is None else found.dtype


def only_user(node: Node, user: Node) -> bool:
    return list(node.users) == [user]


def number(given: Any) -> float | None:
    return float(given) if isinstance(given, (int, float)) and not isinstance(given, bool) else None
