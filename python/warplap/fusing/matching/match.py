"""What a pattern gives, and what is asked of nodes."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Callable

import torch
from torch.fx import Node as FxNode

from .node_kinds import argument, value

# torch's own type of what a node is given is a union of nineteen, of which nothing follows.
Node = Any

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class Match:
    """Nodes that one call computes."""

    template: str
    nodes: tuple[Node, ...]
    gives: tuple[Node, ...]
    """What the call returns, in its order; a single one is returned as it is."""
    call: Callable[..., Any]
    args: tuple[Any, ...]


def is_float(node: Any) -> bool:
    result = value(node)
    return result is not None and result.dtype in _FLOATS and result.layout == torch.strided and result.ndim > 0


def alike(a: Any, b: Any) -> bool:
    """Whether two nodes give tensors of one type and size."""
    x, y = value(a), value(b)
    return x is not None and y is not None and x.dtype == y.dtype and x.shape == y.shape


def dtype_of(node: Any) -> Any:
    result = value(node)
    return None if result is None else result.dtype


def only_user(node: Node, user: Node) -> bool:
    return list(node.users) == [user]


def number(inputs: Any) -> float | None:
    return float(inputs) if isinstance(inputs, (int, float)) and not isinstance(inputs, bool) else None


def is_call(node: Any, *names: Any) -> bool:
    """Whether a node calls one of these functions, or a method of one of these names."""
    kinds = ("call_function", "call_method")
    return isinstance(node, FxNode) and node.op in kinds and any(node.target is n or node.target == n for n in names)


def half_of(node: Any) -> tuple[Node, int, tuple[Node, ...]] | None:
    """What a node is a half of along the last dimension, which half, and the nodes that say so."""
    if not is_call(node, operator.getitem) or len(node.args) != 2:
        return None
    whole, index = node.args
    if is_call(whole, torch.chunk, "chunk") and isinstance(index, int):
        x, last = whole.args[0], argument(whole, 2, "dim", 0)
        ends = value(x) is not None and last in (-1, value(x).ndim - 1)
        return (x, index, (whole, node)) if ends and argument(whole, 1, "chunks") == 2 and index in (0, 1) else None
    x = value(whole)
    if x is None or not isinstance(index, tuple) or len(index) != 2 or index[0] is not Ellipsis:
        return None
    part, half = index[1], x.shape[-1] // 2
    if not isinstance(part, slice) or part.step not in (None, 1) or x.shape[-1] % 2:
        return None
    if part.start in (None, 0) and part.stop == half:
        return whole, 0, (node,)
    return (whole, 1, (node,)) if part.start == half and part.stop in (None, x.shape[-1]) else None
