"""Norms over the last dimension, by torch's names and as models write them out."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.fx import Node as FxNode

from .match import Node, dtype_of, is_float, number, only_user
from .node_kinds import argument, value, word


@dataclasses.dataclass(frozen=True)
class Norm:
    """Its nodes, with the last one last, and what it reads."""

    nodes: tuple[Node, ...]
    x: Node
    weight: Any
    bias: Any
    kind: str
    eps: float


def norm_of(node: Node) -> Norm | None:
    """A norm over the last dimension that ends with this node."""
    result = _named(node) if word(node) in ("layer_norm", "rms_norm") else _by_hand(node)
    if result is None or not is_float(result.x):
        return None
    inputs = [w for w in (result.weight, result.bias) if w is not None]
    return result if all(dtype_of(w) == dtype_of(result.x) and value(w).ndim == 1 for w in inputs) else None


def _named(node: Node) -> Norm | None:
    name = str(word(node))
    x, sizes = node.args[0], argument(node, 1, "normalized_shape")
    last = value(x)
    if last is None or len(tuple(sizes)) != 1 or tuple(sizes)[0] != last.shape[-1]:
        return None
    weight = argument(node, 2, "weight")
    if name == "layer_norm":
        bias, eps = argument(node, 3, "bias"), argument(node, 4, "eps", 1e-5)
    else:
        bias, eps = None, argument(node, 3, "eps")
    # Where none is given torch takes that of the type it computes in, which for halves is float32.
    eps = torch.finfo(torch.promote_types(last.dtype, torch.float32)).eps if eps is None else number(eps)
    return None if eps is None else Norm((node,), x, weight, bias, name.partition("_")[0], eps)


def _by_hand(node: Node) -> Norm | None:
    """An RMSNorm as models write it out: ``weight * (h * rsqrt(h.pow(2).mean(-1) + eps)).to(x.dtype)``, where h is x or
    x in float32."""
    if word(node) != "mul" or len(node.args) != 2:
        return None
    for weight, scaled in (node.args, node.args[::-1]):
        if not (isinstance(weight, FxNode) and isinstance(scaled, FxNode)) or value(weight) is None:
            continue
        if value(weight).ndim != 1:
            continue
        inner = [node]
        if word(scaled) == "to" and only_user(scaled, node):
            inner.append(scaled)
            scaled = scaled.args[0]
        result = _scaled_by_root(scaled, inner[-1])
        if result is not None:
            x, eps, nodes = result
            if value(node).dtype == dtype_of(x):
                return Norm((*nodes, *inner[::-1]), x, weight, None, "rms", eps)
    return None


def _scaled_by_root(node: Any, user: Node) -> tuple[Node, float, list[Node]] | None:
    """x, eps and the nodes of ``h * rsqrt(mean(h * h) + eps)``, which nobody but ``user`` reads."""
    if word(node) != "mul" or len(node.args) != 2 or not only_user(node, user):
        return None
    for h, root in (node.args, node.args[::-1]):
        if word(root) != "rsqrt" or not only_user(root, node):
            continue
        total = root.args[0]
        if word(total) != "add" or not only_user(total, root) or len(total.args) != 2:
            continue
        eps, mean = number(total.args[1]), total.args[0]
        if eps is None or word(mean) != "mean" or not only_user(mean, total):
            continue
        last = argument(mean, 1, "dim")
        last = last[0] if isinstance(last, (list, tuple)) and len(last) == 1 else last
        square = mean.args[0]
        if argument(mean, 2, "keepdim") is not True or last not in (-1, value(h).ndim - 1):
            continue
        squared = (word(square) == "pow" and square.args[1] in (2, 2.0)) or word(square) == "square"
        twice = word(square) == "mul" and len(square.args) == 2 and square.args[0] is square.args[1]
        if not (squared or twice) or not only_user(square, mean) or square.args[0] is not h:
            continue
        nodes = [square, mean, total, root, node]
        cast = word(h) == "to" and set(h.users) == {square, node} and is_float(h.args[0])
        if cast and dtype_of(h) == torch.float32:
            return h.args[0], eps, [h, *nodes]
        if is_float(h):
            return h, eps, nodes
    return None
