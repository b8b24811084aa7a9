"""What linear, gated_linear and gated cover: a product with its bias, the activation behind it, and what is added or
multiplied then; two products of one x, of which one lets the other through; and an activation that lets a tensor
through, where neither is a product."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

from ...operator.problem_text import ACTIVATIONS as FUSED
from .. import calls
from ..match import Match, Node, alike, dtype_of, half_of, is_float, only_user
from ..node_kinds import argument, value, word

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
        return _named("linear", self.activation)


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
    inputs = [t for t in (x, w, bias) if t is not None]
    matrix = value(w)
    same = all(is_float(t) and dtype_of(t) == dtype_of(x) for t in inputs)
    return same and matrix is not None and matrix.ndim == 2


def _activated(node: Any, user: Node) -> tuple[tuple[Node, ...], Node, str | None]:
    """The nodes of an activation that a product may end in, what is activated, and its name: the node itself and
    nothing where it is none."""
    act = word(node)
    if act not in FUSED or not node.args or not only_user(node, user):
        return (), node, None
    tanh = act == "gelu" and argument(node, 1, "approximate", "none") == "tanh"
    return (node,), node.args[0], "gelu_tanh" if tanh else act


def gates(node: Node) -> Iterator[Match]:
    """The gated half of a layer, ``silu(linear(x, gate)) * linear(x, up)``: of two weights, or of the halves of one."""
    if word(node) != "mul" or len(node.args) != 2 or node.kwargs or not is_float(node) or value(node).requires_grad:
        return
    for one, other in (node.args, node.args[::-1]):
        acts, inner, name = _activated(one, node)
        above = one if acts else node
        gate, up = layer_of(inner), layer_of(other)
        if gate is not None and up is not None and gate.activation is None and up.activation is None:
            alone = inner is not other and only_user(inner, above) and only_user(other, node)
            same = gate.x is up.x and value(gate.w).shape == value(up.w).shape
            if alone and same and gate.bias is None and up.bias is None:
                nodes = tuple(sorted((inner, *acts, other, node)))
                yield Match(_named("gated_linear", name), nodes, (node,), calls.gated, (gate.x, gate.w, up.w, name))
                if name is None:  # the other way round is the same
                    return
        halves = [half_of(inner, above), half_of(other, node)]
        if halves[0] is not None and halves[1] is not None:
            yield from _of_halves(node, acts, name, halves[0], halves[1])
            if name is None:
                return


def _of_halves(
    node: Node, acts: tuple[Node, ...], name: str | None, gate: tuple[Any, ...], up: tuple[Any, ...]
) -> Iterator[Match]:
    """The same of one product, whose halves along the last dimension they are, where nobody else reads any of it."""
    (whole, first, own), (same, second, more) = gate, up
    layer = layer_of(whole)
    if same is not whole or first == second or layer is None or layer.activation is not None or layer.bias is not None:
        return
    parts = {*own, *more}
    inside = {*parts, *acts, node}
    if value(layer.w).shape[0] % 2 or any(user not in inside for part in (whole, *parts) for user in part.users):
        return
    nodes, args = tuple(sorted((whole, *inside))), (layer.x, layer.w, name, first)
    yield Match(_named("gated_halves", name), nodes, (node,), calls.gated_halves, args)


def activations(node: Node) -> Iterator[Match]:
    """``silu(a) * b`` of what is there already. Products that nobody else reads are for covers that take them in; an
    activation alone is torch's own."""
    if word(node) != "mul" or len(node.args) != 2 or node.kwargs or not is_float(node) or any(gates(node)):
        return
    for one, other in (node.args, node.args[::-1]):
        acts, inner, name = _activated(one, node)
        if name is None or other is one or not alike(inner, node) or not alike(other, node):
            continue
        products = ((inner, one), (other, node))
        if not any(word(product) == "linear" and only_user(product, user) for product, user in products):
            yield Match(f"{name}_mul", (*acts, node), (node,), calls.activated, (inner, other, name))


def _named(template: str, activation: str | None) -> str:
    return template if activation is None else f"{template}_{activation}"


def linears(node: Node) -> Iterator[Match]:
    """A layer, and a layer joined with any tensor of its output's size: ``x + linear(y)``, ``silu(linear(x)) * y``."""
    layer = layer_of(node)
    if layer is not None:
        yield Match(layer.name, layer.nodes, (node,), calls.linear, layer[1:])
    join = {"add": "residual", "mul": "times"}.get(word(node) or "")
    # Where gradients are wanted nothing is saved: what is before the join is kept for them.
    if join is None or len(node.args) != 2 or node.kwargs or not is_float(node) or value(node).requires_grad:
        return
    for one, other in (node.args, node.args[::-1]):
        layer = layer_of(one)
        if layer is None or other is one or not only_user(one, node):
            continue
        if alike(one, node) and alike(other, node):
            pair = (other, None) if join == "residual" else (None, other)
            name, nodes = f"{layer.name}_{word(node)}", (*layer.nodes, node)
            yield Match(name, nodes, (node,), calls.linear, (*layer[1:], *pair))
