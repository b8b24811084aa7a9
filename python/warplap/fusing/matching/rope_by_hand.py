"""Rotary position embedding as Llama's models write it out: ``x * cos + rotate_half(x) * sin``, where the two halves of
a head change places and the second one its sign."""

from __future__ import annotations

import operator
from typing import Any, Iterator, NamedTuple

import torch
from torch.fx import Node as FxNode

from ...ops import rope as rope_
from .match import Node, half_of, is_call, is_float
from .node_kinds import argument, value, word


class Turn(NamedTuple):
    """One tensor that is turned: its nodes with the sum last, what is turned, by what, and where its heads lie."""

    nodes: tuple[Node, ...]
    x: Node
    cos: Node
    sin: Node
    heads_dim: int


def _rotated(node: Any, user: Node) -> tuple[Node, tuple[Node, ...]] | None:
    """x and the nodes of ``cat((-x2, x1), -1)``."""
    if not is_call(node, torch.cat) or list(node.users) != [user] or value(node) is None:
        return None
    parts, last = node.args[0], argument(node, 1, "dim", 0)
    if last not in (-1, value(node).ndim - 1) or not isinstance(parts, (tuple, list)) or len(parts) != 2:
        return None
    minus, first = parts
    if not is_call(minus, operator.neg, torch.neg, "neg") or list(minus.users) != [node]:
        return None
    second = minus.args[0]
    if any(isinstance(half, FxNode) and len(half.users) != 1 for half in (first, second)):
        return None
    low, high = half_of(first), half_of(second)
    if low is None or high is None or low[0] is not high[0] or (low[1], high[1]) != (0, 1):
        return None
    own = dict.fromkeys((*low[2], *high[2]))  # the halves of one chunk have it in common
    if any(user not in own and user is not minus and user is not node for part in own for user in part.users):
        return None
    return low[0], (*own, minus, node)


def _products(node: Node) -> Iterator[tuple[Node, Node]]:
    """The two products of a sum, either way round."""
    if word(node) == "add" and len(node.args) == 2 and not node.kwargs:
        if all(word(a) == "mul" and len(a.args) == 2 and list(a.users) == [node] for a in node.args):
            yield from (tuple(node.args), tuple(node.args)[::-1])  # type: ignore[misc]


def turn_of(node: Node) -> Turn | None:
    """A tensor whose turn ends with this sum."""
    for straight, crossed in _products(node):
        for around, sin in (crossed.args, crossed.args[::-1]):
            result = _rotated(around, crossed)
            if result is None or straight.args.count(result[0]) != 1:
                continue
            x, nodes = result
            cos = straight.args[1 - straight.args.index(x)]
            heads_dim = _place(x, cos, sin, node)
            if heads_dim is not None:
                return Turn((*nodes, straight, crossed, node), x, cos, sin, heads_dim)
    return None


def _place(x: Node, cos: Any, sin: Any, node: Node) -> int | None:
    """The dimension of heads, which tables have once; None where no call can stand in."""
    own, tables = value(x), [value(t) for t in (cos, sin)]
    if own is None or any(t is None or t.dtype != own.dtype or t.requires_grad for t in tables):
        return None
    first = tables[0]
    same = first.shape == tables[1].shape and first.ndim == own.ndim == 4 and first.shape[-1] == own.shape[-1]
    if not same or not is_float(x) or value(node).dtype != own.dtype:
        return None
    for place in (1, 2):
        lead = rope_.tokens_of(first.shape, place)
        if first.shape[place] == 1 and rope_.spreads(lead, rope_.tokens_of(own.shape, place)):
            return place
    return None
