"""Nodes of a traced graph as fusion patterns read them: each in a word, with the nodes it reads in fixed places."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple

from torch.fx import Node as FxNode

from ... import _warplap
from ...operator.problem_text import ACTIVATIONS
from . import calls
from .constant_masks import WINDOW
from .match import Match, Node, alike, dtype_of, half_of, is_float, number
from .node_kinds import argument, dropout_of, value, word
from .norm_by_hand import norm_of
from .rope_by_hand import turn_of


class Step(NamedTuple):
    """What a node does, and perhaps a number; what it reads, by places; the nodes that it stands for where it is written
    out in several; and our operator in its place."""

    word: str = "other"
    number: float = 0.0
    reads: tuple[Any, ...] = ()
    nodes: tuple[Node, ...] = ()
    alone: Match | None = None


def step_of(node: Node) -> Step:
    """How a node is lowered."""
    for lower in (_norm, _turn, _BY_WORD.get(word(node) or "", _half)):
        step: Step | None = lower(node)
        if step is not None:
            return step
    return Step(reads=tuple(node.all_input_nodes))


def _ours(name: str, node: Node, call: Any, args: tuple[Any, ...], nodes: tuple[Node, ...] = ()) -> Match:
    return Match(name, nodes or (node,), (node,), call, args)


def _norm(node: Node) -> Step | None:
    norm = norm_of(node)
    if norm is None:
        return None
    args = (norm.x, norm.weight, norm.bias, norm.kind, norm.eps)
    alone = _ours("norm", node, calls.norm, args, norm.nodes)
    return Step(f"{norm.kind}_norm", norm.eps, args[:3], norm.nodes, alone)


def _turn(node: Node) -> Step | None:
    turn = turn_of(node)
    if turn is None:
        return None
    alone = _ours("rope", node, calls.turned, (turn.x, turn.cos, turn.sin, turn.heads_dim), turn.nodes)
    return Step("rope", turn.heads_dim, (turn.x, None, turn.cos, turn.sin, None, None), turn.nodes, alone)


def _linear(node: Node) -> Step | None:
    x, w, bias = node.args[0], node.args[1], argument(node, 2, "bias")
    inputs, matrix = [t for t in (x, w, bias) if t is not None], value(w)
    if not all(is_float(t) and dtype_of(t) == dtype_of(x) for t in inputs) or matrix is None or matrix.ndim != 2:
        return None
    return Step("linear", 0.0, (x, w, bias), (), _ours("linear", node, calls.linear, (x, w, bias, None)))


def _activation(node: Node) -> Step | None:
    act = str(word(node))
    if not node.args or not is_float(node):
        return None
    if act == "gelu" and argument(node, 1, "approximate", "none") == "tanh":
        act = "gelu_tanh"
    return Step(act, 0.0, (node.args[0], None))


def _joined(node: Node) -> Step | None:
    """A sum or a product of two tensors as large, a sum with one that spreads, or a product with a number."""
    if len(node.args) != 2 or node.kwargs or not is_float(node):
        return None
    kind = str(word(node))
    a, b = node.args
    if isinstance(a, FxNode) and isinstance(b, FxNode) and alike(a, node) and alike(b, node):
        return None if kind == "div" else Step(kind, 0.0, (a, b))
    for inner, other in ((a, b), (b, a)):
        if not alike(inner, node):
            continue
        if isinstance(other, FxNode):
            if kind == "add" and dtype_of(other) == dtype_of(node):
                size = value(node).shape
                is_line = value(other).shape == size[-1:] != size
                return Step("line" if is_line else "spread", 0.0, (inner, other))
        elif (factor := number(other)) and kind in ("mul", "div") and (kind == "mul" or inner is a):
            return Step("scale", factor if kind == "mul" else 1.0 / factor, (inner,))
    return None


def _dropout(node: Node) -> Step | None:
    share = dropout_of(node)
    is_one = share is not None and 0.0 < share < 1.0 and alike(node.args[0], node)
    return Step("dropout", share or 0.0, (node.args[0],)) if is_one else None


def _half(node: Node) -> Step | None:
    """A half along the last dimension, by a slice or out of a chunk."""
    half = half_of(node)
    return None if half is None else Step(("first_half", "second_half")[half[1]], 0.0, (half[0],), half[2])


def _softmax(node: Node) -> Step | None:
    if not is_float(node) or argument(node, 2, "dtype") is not None or node.kwargs.get("_stacklevel", 3) != 3:
        return None
    x = node.args[0]
    if argument(node, 1, "dim") not in (-1, value(node).ndim - 1) or not alike(x, node):
        return None
    return Step("softmax", 0.0, (x, None), (), _ours("softmax", node, calls.softmax, (x, None, 1.0)))


def _attention(node: Node) -> Step | None:
    q, k, v = (argument(node, i, name) for i, name in enumerate(("query", "key", "value")))
    if not all(is_float(t) and dtype_of(t) == dtype_of(q) for t in (q, k, v)):
        return None
    if number(argument(node, 4, "dropout_p", 0.0)) != 0.0:
        return None
    mask, is_causal = argument(node, 3, "attn_mask"), argument(node, 5, "is_causal", False)
    args: tuple[Any, ...] = (q, k, v, mask, is_causal, argument(node, 6, "scale"), argument(node, 7, "enable_gqa", False))
    if WINDOW in node.meta:
        args = (q, k, v, None, True, *args[5:], node.meta[WINDOW])
    reads = tuple(node.all_input_nodes)
    return Step("attention", 0.0, reads, (), _ours("attention", node, calls.attention, args))


def _head_product(node: Node) -> Step | None:
    if len(node.args) != 2 or not all(is_float(t) and value(t).ndim == 4 for t in node.args):
        return None
    a, b = node.args
    return Step("head_product", 0.0, (a, b)) if value(a).shape[:2] == value(b).shape[:2] else None


def _turned(node: Node) -> Step | None:
    x = value(node.args[0])
    places = {i % 4 for i in node.args[1:] if isinstance(i, int)}
    is_one = x is not None and x.ndim == 4 and places == {2, 3}
    return Step("turned", 0.0, (node.args[0],)) if is_one else None


def _loss(node: Node) -> Step | None:
    logits, labels = argument(node, 0, "input"), argument(node, 1, "target")
    old = [argument(node, i, name) for i, name in ((2, "weight"), (3, "size_average"), (5, "reduce"))]
    classes, rows = value(labels), value(logits)
    if any(inputs is not None for inputs in old) or classes is None or rows is None or not is_float(logits):
        return None
    if rows.ndim != 2 or classes.ndim != 1 or str(classes.dtype) != "torch.int64":
        return None
    numbers = argument(node, 4, "ignore_index", -100), float(argument(node, 7, "label_smoothing", 0.0))
    args = (logits, labels, *numbers, argument(node, 6, "reduction", "mean"))
    return Step("loss", 0.0, (logits, labels), (), _ours("cross_entropy", node, calls.cross_entropy, args))


_BY_WORD: dict[str, Any] = {
    "linear": _linear, "add": _joined, "mul": _joined, "div": _joined, "dropout": _dropout, "softmax": _softmax,
    "attention": _attention, "matmul": _head_product, "transpose": _turned, "cross_entropy": _loss,
    **{act: _activation for act in ACTIVATIONS},
}  # fmt: skip


class Lowered:
    """A graph's nodes as steps, and every match that the patterns find."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes, self.steps = nodes, [step_of(node) for node in nodes]
        places = {node: i for i, node in enumerate(nodes)}
        values, sizes = dict(places), dict[str, int]()

        def number_of(node: Any) -> int:
            return values.setdefault(node, len(values))  # what comes from outside counts on behind the nodes

        def columns(node: Any) -> int:
            """Sizes that change are no numbers: they are compared by how they are written."""
            t = value(node)
            size = "" if t is None or t.ndim == 0 else str(t.shape[-1])
            return sizes.setdefault(size, len(sizes))

        def row(node: Node, step: Step) -> Any:
            reads = [number_of(read) if isinstance(read, FxNode) else None for read in step.reads]
            first = step.reads[0] if step.reads else None
            includes = [places[other] for other in step.nodes if other is not node and other in places]
            return step.word, float(step.number), reads, columns(node), columns(first), includes

        rows = [row(node, step) for node, step in zip(nodes, self.steps)]
        seen = [i for i, node in enumerate(nodes) if any(user.op == "output" for user in node.users)]
        self.matches: list[list[Any]] = _warplap.fusion_matches(rows, seen)
        self._of = {i: node for node, i in values.items()}

    def node(self, number: int | None) -> Any:
        """The node that gives a value."""
        return None if number is None else self._of[number]

    def written(self, numbers: Iterable[int]) -> tuple[Node, ...]:
        return tuple(map(self.node, numbers))

