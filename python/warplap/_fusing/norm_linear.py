"""What norm_linear covers, of graphs whose weights stay as they are: an RMSNorm and the layers that read it, each as one
product. The norm's gain is folded into copies of their weights."""

from __future__ import annotations

from typing import Any, Callable, Iterator

from . import calls, products
from .found import Found, Node, is_float
from .templates import Norm, norm_of
from .words import value, word

# Layers that read one norm, at the most: q, k and v, and one more.
_MOST = 4

_CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    calls.linear: calls.norm_linear, calls.gated: calls.norm_gated, calls.gated_halves: calls.norm_gated_halves,
}  # fmt: skip


def found(node: Node) -> Iterator[Found]:
    """Everything that ends with this node."""
    if not is_float(node) or value(node).requires_grad:
        return
    for layer in (*products.linears(node), *products.gates(node)):
        norm = _norm(layer.args[0])
        if norm is None or layer.call not in _CALLS or any(u not in layer.nodes for u in layer.args[0].users):
            continue
        args = (norm.x, norm.weight, norm.eps, *layer.args[1:])
        yield Found(f"norm_{layer.template}", (*norm.nodes, *layer.nodes), layer.gives, _CALLS[layer.call], args)
    yield from _several(node)


def _norm(node: Any) -> Norm | None:
    norm = norm_of(node) if word(node) is not None else None
    return norm if norm is not None and norm.kind == "rms" and norm.bias is None else None


def _several(node: Node) -> Iterator[Found]:
    """Layers of one norm, the last of which is this node."""
    layer = products.layer_of(node)
    norm = None if layer is None or layer.activation is not None else _norm(layer.x)
    if layer is None or norm is None:
        return
    users = sorted(layer.x.users)
    layers = [products.layer_of(user) for user in users]
    if users[-1] is not node or not 2 <= len(users) <= _MOST:
        return
    weights = [(one.w, one.bias) for one in layers if one is not None and one.activation is None]
    if len(weights) == len(users):
        args = (norm.x, norm.weight, norm.eps, tuple(weights))
        yield Found(f"norm_linears_{len(users)}", (*norm.nodes, *users), tuple(users), calls.norm_linears, args)
