"""What norm_linear covers, of graphs whose weights stay as they are: an RMSNorm and the layers that read it, each as
one product. The norm's gain is folded into copies of their weights."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Sequence

from torch.fx import Graph

from ...ops.norm_linear import folded
from .. import calls
from ..match import Match, Node, is_float
from ..node_kinds import value, word
from . import products
from .rows import Norm, norm_of

# Layers that read one norm, at the most: q, k and v, and one more.
_MOST = 4

_CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    calls.linear: calls.norm_linear, calls.gated: calls.norm_gated,
}  # fmt: skip


def norm_linears(node: Node) -> Iterator[Match]:
    """Everything that ends with this node."""
    if not is_float(node) or value(node).requires_grad:
        return
    for layer in (*products.linears(node), *products.gates(node)):
        norm = _norm(layer.args[0])
        if norm is None or layer.call not in _CALLS or any(u not in layer.nodes for u in layer.args[0].users):
            continue
        args = (norm.x, norm.weight, norm.eps, *layer.args[1:])
        if not _stays(norm.weight, *_weights(_CALLS[layer.call], args)):
            continue
        yield Match(f"norm_{layer.template}", (*norm.nodes, *layer.nodes), layer.gives, _CALLS[layer.call], args)
    yield from _several(node)


def _norm(node: Any) -> Norm | None:
    norm = norm_of(node) if word(node) is not None else None
    return norm if norm is not None and norm.kind == "rms" and norm.bias is None else None


def _several(node: Node) -> Iterator[Match]:
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
    if len(weights) == len(users) and _stays(norm.weight, *(w for w, _ in weights)):
        args = (norm.x, norm.weight, norm.eps, tuple(weights))
        yield Match(f"norm_linears_{len(users)}", (*norm.nodes, *users), tuple(users), calls.norm_linears, args)


def _stays(*weights: Any) -> bool:
    """Whether weights come from outside of the graph: what it computes lies in memory that is used again."""
    return all(w is None or w.op in ("placeholder", "get_attr") for w in weights)


def _weights(call: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    """The weights behind a norm, of a cover's arguments."""
    if call is calls.norm_linears:
        return [w for w, _ in args[3]]
    return list(args[3:5] if call is calls.norm_gated else args[3:4])


def fold(covers: Iterable[Match], graph: Graph, inputs: Sequence[Any]) -> None:
    """Folds the weights of a choice, before it runs: what is made while a compiled program runs may be the
    program's."""
    of = dict(zip(graph.find_nodes(op="placeholder"), inputs))
    for result in covers:
        if result.call in (*_CALLS.values(), calls.norm_linears) and result.args[1] in of:
            for w in _weights(result.call, result.args):
                if w in of:
                    folded(of[w], of[result.args[1]], make=True)
