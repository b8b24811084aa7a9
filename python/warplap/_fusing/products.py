"""What linear covers: a product with its bias, the activation behind it, and what is added or multiplied then."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

from .._facts import ACTIVATIONS as FUSED
from . import calls
from .found import Found, Node, alike, dtype_of, is_float, only_user
from .words import argument, value, word

_ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid")


class _Layer(NamedTuple):
    """A product and perhaps its activation."""

    nodes: tuple[Node, ...]
    x: Node
    w: Node
    bias: Any
    activation: str | None

    @property
    def name(self) -> str:
        return "linear" if self.activation is None else f"linear_{self.activation}"


def layer_of(node: Any) -> _Layer | None:
    """The layer that ends with this node."""
    if word(node) == "linear":
        x, w, bias = node.args[0], node.args[1], argument(node, 2, "bias")
        return _Layer((node,), x, w, bias, None) if _is_product(x, w, bias) else None
    if word(node) not in _ACTIVATIONS or not node.args:
        return None
    product, act = node.args[0], word(node)
    if act == "gelu" and argument(node, 1, "approximate", "none") == "tanh":
        act = "gelu_tanh"
    inner = layer_of(product) if word(product) == "linear" and only_user(product, node) else None
    return None if inner is None else inner._replace(nodes=(product, node), activation=act)


def _is_product(x: Any, w: Any, bias: Any) -> bool:
    given = [t for t in (x, w, bias) if t is not None]
    matrix = value(w)
    same = all(is_float(t) and dtype_of(t) == dtype_of(x) for t in given)
    return same and matrix is not None and matrix.ndim == 2


def linears(node: Node) -> Iterator[Found]:
    """A layer, and a layer joined with any tensor of its output's size: ``x + linear(y)``, ``silu(linear(x)) * y``."""
    layer = layer_of(node)
    if layer is not None:
        yield Found(layer.name, layer.nodes, (node,), calls.linear, layer[1:])
    join = {"add": "residual", "mul": "times"}.get(word(node) or "")
    # Where gradients are wanted nothing is saved: what is before the join is kept for them.
    if join is None or len(node.args) != 2 or node.kwargs or not is_float(node) or value(node).requires_grad:
        return
    for one, other in (node.args, node.args[::-1]):
        layer = layer_of(one)
        if layer is None or layer.activation not in (None, *FUSED) or other is one or not only_user(one, node):
            continue
        if alike(one, node) and alike(other, node):
            pair = (other, None) if join == "residual" else (None, other)
            name, nodes = f"{layer.name}_{word(node)}", (*layer.nodes, node)
            yield Found(name, nodes, (node,), calls.linear, (*layer[1:], *pair))
