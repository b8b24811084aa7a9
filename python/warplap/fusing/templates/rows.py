"""What our operators cover: each template looks back from a node, which computes the last step of an operator, and
gives every set of nodes that one call can stand in for. Adding one is a function and a line of the list."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator

import torch
from torch.fx import Node as FxNode

from .. import calls
from ..match import Match, Node, alike, dtype_of, is_float, number, only_user
from ..node_kinds import argument, dropout_of, value, word
from . import products, rope

# Norms.


@dataclasses.dataclass(frozen=True)
class Norm:
    nodes: tuple[Node, ...]
    x: Node
    weight: Any
    bias: Any
    kind: str
    eps: float


def norm_of(node: Node) -> Norm | None:
    """A norm over the last dimension that ends with this node."""
    name = word(node)
    if name in ("layer_norm", "rms_norm"):
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
        result = None if eps is None else Norm((node,), x, weight, bias, name.partition("_")[0], eps)
    else:
        result = _by_hand(node)
    if result is None or not is_float(result.x):
        return None
    inputs = [w for w in (result.weight, result.bias) if w is not None]
    return result if all(dtype_of(w) == dtype_of(result.x) and value(w).ndim == 1 for w in inputs) else None


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


def _norms(node: Node) -> Iterator[Match]:
    result = norm_of(node)
    if result is None:
        return
    facts = (result.weight, result.bias, result.kind, result.eps)
    yield Match("norm", result.nodes, (node,), calls.norm, (result.x, *facts))
    total = result.x
    for front in _fronts(total, None):
        nodes, args = (*front.nodes, *result.nodes), (front.x, None, *facts, front.before, front.dropout)
        yield Match(f"{front.name}_norm", nodes, (node, total), calls.front_norm, args)
    if word(total) != "add" or len(total.args) != 2 or total.kwargs or not alike(*total.args):
        return
    x, residual = total.args
    if set(total.users) <= set(result.nodes):  # nobody else reads the sum
        yield Match("norm_of_sum", (total, *result.nodes), (node,), calls.norm_of_sum, (x, residual, *facts))
    else:
        yield Match("add_norm", (total, *result.nodes), (node, total), calls.add_norm, (x, residual, *facts))
    for one, other in ((x, residual), (residual, x)):
        for front in _fronts(one, total):
            nodes, args = (*front.nodes, total, *result.nodes), (front.x, other, *facts, front.before, front.dropout)
            yield Match(f"{front.name}_add_norm", nodes, (node, total), calls.front_norm, args)


@dataclasses.dataclass(frozen=True)
class _Front:
    """What stands in front of a norm or its sum: a line added to all rows, elements dropped."""

    nodes: tuple[Node, ...]
    x: Node
    before: Any
    dropout: float

    @property
    def name(self) -> str:
        return "_".join(("bias",) * (self.before is not None) + ("drop",) * (self.dropout > 0.0))


def _fronts(node: Any, user: Node | None) -> Iterator[_Front]:
    """All that ends with this node, which nobody but ``user`` reads where one is given."""
    nodes: tuple[Node, ...] = ()
    share = dropout_of(node) if word(node) == "dropout" else None
    if share is not None and 0.0 < share < 1.0 and (user is None or only_user(node, user)):
        inner = node.args[0]
        if alike(inner, node):
            yield _Front((node,), inner, None, share)
            nodes, user, node = (node,), node, inner
    if word(node) != "add" or len(node.args) != 2 or node.kwargs or not (user is None or only_user(node, user)):
        return
    for x, line in (node.args, node.args[::-1]):
        if alike(x, node) and value(line) is not None and value(line).shape == value(x).shape[-1:] != value(x).shape:
            if dtype_of(line) == dtype_of(x):
                yield _Front((node, *nodes), x, line, share or 0.0)


# Softmax and attention.


@dataclasses.dataclass(frozen=True)
class _Softmax:
    nodes: tuple[Node, ...]
    x: Any
    mask: Any
    scale: float


def _softmaxes_of(node: Node) -> Iterator[_Softmax]:
    """A softmax along the last dimension: by itself, of a sum with a mask, of something times a number, of both."""
    if word(node) != "softmax" or not is_float(node) or argument(node, 2, "dtype") is not None:
        return
    x, size = node.args[0], value(node)
    dim = argument(node, 1, "dim")
    if node.kwargs.get("_stacklevel", 3) != 3 or dim not in (-1, size.ndim - 1) or not alike(x, node):
        return
    yield _Softmax((node,), x, None, 1.0)
    nodes: tuple[Node, ...] = (node,)
    mask, above = None, node
    if word(x) == "add" and len(x.args) == 2 and not x.kwargs and only_user(x, above):
        for inner, added in (x.args, x.args[::-1]):
            if isinstance(added, FxNode) and dtype_of(added) == size.dtype and alike(inner, node):
                nodes, mask, above, x = (x, *nodes), added, x, inner
                yield _Softmax(nodes, x, mask, 1.0)
                break
    if word(x) in ("mul", "div") and len(x.args) == 2 and not x.kwargs and only_user(x, above):
        inner, factor = x.args[0], number(x.args[1])
        if factor and alike(inner, node):
            scale = factor if word(x) == "mul" else 1.0 / factor
            yield _Softmax((x, *nodes), inner, mask, scale)


def _softmaxes(node: Node) -> Iterator[Match]:
    for result in _softmaxes_of(node):
        name = "softmax" + ("_mask" if result.mask is not None else "") + ("_scale" if result.scale != 1.0 else "")
        yield Match(name, result.nodes, (node,), calls.softmax, (result.x, result.mask, result.scale))


def _attentions(node: Node) -> Iterator[Match]:
    if word(node) == "attention":
        q, k, v = (argument(node, i, name) for i, name in enumerate(("query", "key", "value")))
        if not all(is_float(t) and dtype_of(t) == dtype_of(q) for t in (q, k, v)):
            return
        if number(argument(node, 4, "dropout_p", 0.0)) == 0.0:
            mask, is_causal = argument(node, 3, "attn_mask"), argument(node, 5, "is_causal", False)
            scale, gqa = argument(node, 6, "scale"), argument(node, 7, "enable_gqa", False)
            yield Match("attention", (node,), (node,), calls.attention, (q, k, v, mask, is_causal, scale, gqa))
        return
    if word(node) != "matmul" or len(node.args) != 2:
        return
    weights, v = node.args
    if not isinstance(weights, FxNode) or not only_user(weights, node) or not is_float(v):
        return
    for result in _softmaxes_of(weights):
        scores = result.x
        if word(scores) != "matmul" or not only_user(scores, result.nodes[0]) or len(scores.args) != 2:
            continue
        q, turned = scores.args
        if word(turned) != "transpose" or not isinstance(turned, FxNode):
            continue
        k, sizes = turned.args[0], value(q)
        places = {i % 4 for i in turned.args[1:] if isinstance(i, int)}
        if sizes is None or sizes.ndim != 4 or places != {2, 3} or not _plain_heads(q, k, v):
            continue
        nodes = (turned, scores, *result.nodes, node) if only_user(turned, scores) else (scores, *result.nodes, node)
        args = (q, k, v, result.mask, False, result.scale, False)
        yield Match("attention", nodes, (node,), calls.attention, args)


def _plain_heads(q: Any, k: Any, v: Any) -> bool:
    if not all(is_float(t) and value(t).ndim == 4 for t in (q, k, v)):
        return False
    a, b, c = (value(t).shape for t in (q, k, v))
    return a[:2] == b[:2] == c[:2] and a[3] == b[3] and b[2] == c[2]


# Losses.


def _entropies(node: Node) -> Iterator[Match]:
    if word(node) != "cross_entropy":
        return
    logits, labels = argument(node, 0, "input"), argument(node, 1, "target")
    old = [argument(node, i, name) for i, name in ((2, "weight"), (3, "size_average"), (5, "reduce"))]
    classes, rows = value(labels), value(logits)
    if any(inputs is not None for inputs in old) or classes is None or rows is None or not is_float(logits):
        return
    if rows.ndim == 2 and classes.ndim == 1 and classes.dtype == torch.int64:
        numbers = argument(node, 4, "ignore_index", -100), float(argument(node, 7, "label_smoothing", 0.0))
        reduction = argument(node, 6, "reduction", "mean")
        yield Match("cross_entropy", (node,), (node,), calls.cross_entropy, (logits, labels, *numbers, reduction))
        layer = products.layer_of(logits)
        if layer is not None and layer.activation is None and only_user(logits, node):
            args = (layer.x, layer.w, labels, layer.bias, *numbers, reduction)
            yield Match("linear_cross_entropy", (logits, node), (node,), calls.linear_cross_entropy, args)


# Whoever looks first is listed first; the order says nothing else.
TEMPLATES: list[Callable[[Node], Iterator[Match]]] = [
    _norms, products.linears, products.gates, products.activations, _softmaxes, _attentions, _entropies, rope.rotations,
]  # fmt: skip


def covers(node: Node) -> Iterator[Match]:
    """Everything that ends with this node."""
    for template in TEMPLATES:
        yield from template(node)
