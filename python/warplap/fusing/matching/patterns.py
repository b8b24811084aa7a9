"""Calls of our operators in the place of nodes: the native half knows which nodes one launch stands in for
(``warplap-graph``, fusion patterns); here every launch becomes the call that does it."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Sequence

from torch.fx import Graph

from ...ops.products.norm_linear import folded
from . import calls
from .lower import Lowered
from .match import Match, Node
from .node_kinds import value

Call = tuple[Any, tuple[Any, ...]]


def fusion_matches(nodes: list[Node], frozen: bool) -> Iterator[Match]:
    """Everything that our operators could stand in for; behind norms only where weights stay as they are."""
    lowered = Lowered(nodes)
    for step, matches in zip(lowered.steps, lowered.matches):
        if step.alone is not None:
            yield step.alone
        # An activation that a product can end in is for covers that take it in.
        takes_product = any(launches[0]["does"] == "product" for _, _, _, launches in matches)
        for name, places, _, launches in matches:
            if takes_product and launches[0]["does"] == "element":
                continue
            call = _call(lowered, launches, nodes[places[-1]], frozen)
            if call is not None:
                gives = lowered.written(value for launch in launches for value in launch["gives"])
                yield Match(name, lowered.written(places), gives, *call)


def _call(lowered: Lowered, launches: list[dict[str, Any]], last: Node, frozen: bool) -> Call | None:
    """The call of launches, and what it is called with; None where our operators do not do it for this graph."""
    if len(launches) > 1:
        return _several(lowered, launches, last, frozen)
    launch, node = launches[0], lowered.node
    does = launch["does"]
    if does == "product":
        return _product(lowered, launch, last, frozen)
    if does == "element":
        args = (node(launch["a"]), node(launch["b"]), launch["act"])
        return (calls.activated, args) if launch["join"] == "mul" else None
    if does == "norm":
        return _norm(lowered, launch)
    if does == "softmax":
        return calls.softmax, (node(launch["x"]), node(launch["mask"]), launch["scale"])
    if does == "attention":
        q, k, v = lowered.written(launch["qkv"])
        return calls.attention, (q, k, v, node(launch["mask"]), False, launch["scale"], False)
    if does == "rope" and launch["first"] is not None:
        first, own = (lowered.steps[launch[which]].alone for which in ("first", "of"))
        assert first is not None and own is not None
        return calls.turned_pair, (first.args[0], *own.args)
    if does == "projected_loss":
        loss = lowered.steps[launch["loss"]].alone
        assert loss is not None
        return calls.linear_cross_entropy, (node(launch["x"]), node(launch["w"]), loss.args[1], node(launch["bias"]),
                                            *loss.args[2:])  # fmt: skip
    return None


def _norm(lowered: Lowered, launch: dict[str, Any]) -> Call:
    x, residual, weight, bias, before = (
        lowered.node(launch[name]) for name in ("x", "residual", "weight", "bias", "before")
    )
    facts = (weight, bias, launch["kind"], launch["eps"])
    if before is not None or launch["dropout"]:
        return calls.front_norm, (x, residual, *facts, before, launch["dropout"])
    return (calls.add_norm if launch["writes_sum"] else calls.norm_of_sum), (x, residual, *facts)


def _product(lowered: Lowered, launch: dict[str, Any], last: Node, frozen: bool) -> Call | None:
    x, w, bias, other, second, gain = (
        lowered.node(launch[name]) for name in ("x", "w", "bias", "other", "second", "gain")
    )
    joined = () if other is None else (other, None) if launch["join"] == "add" else (None, other)
    is_pair, behind_norm = second is not None or launch["half"] is not None, launch["eps"] is not None
    # Where gradients are wanted nothing is saved: what is before the join is kept for them.
    if (joined or is_pair or behind_norm) and value(last).requires_grad:
        return None
    if behind_norm:
        if not frozen or launch["half"] is not None or not _stays(gain, w, second):
            return None
        norm = (x, gain, launch["eps"])
        if second is not None:
            return calls.norm_gated, (*norm, w, second, launch["act"])
        return calls.norm_linear, (*norm, w, bias, launch["act"], *joined)
    if launch["half"] is not None:
        return calls.gated_halves, (x, w, launch["act"], launch["half"])
    if second is not None:
        return calls.gated, (x, w, second, launch["act"])
    return calls.linear, (x, w, bias, launch["act"], *joined)


def _several(lowered: Lowered, launches: list[dict[str, Any]], last: Node, frozen: bool) -> Call | None:
    """Layers of one norm. Nothing else has several launches here."""
    if not frozen or value(last).requires_grad or any(one.get("eps") is None for one in launches):
        return None
    first, node = launches[0], lowered.node
    weights = tuple((node(one["w"]), node(one["bias"])) for one in launches)
    gain = node(first["gain"])
    if not _stays(gain, *(w for w, _ in weights)):
        return None
    return calls.norm_linears, (node(first["x"]), gain, first["eps"], weights)


def _stays(*weights: Any) -> bool:
    """Whether weights come from outside of the graph: what it computes lies in memory that is used again."""
    return all(w is None or w.op in ("placeholder", "get_attr") for w in weights)


def _weights(match: Match) -> list[Any]:
    """The weights behind a norm, of a match's arguments."""
    if match.call is calls.norm_linears:
        return [w for w, _ in match.args[3]]
    return list(match.args[3:5] if match.call is calls.norm_gated else match.args[3:4])


def fold(covers: Iterable[Match], graph: Graph, inputs: Sequence[Any]) -> None:
    """Folds the weights of a choice, before it runs: what is made while a compiled program runs may be the
    program's."""
    of = dict(zip(graph.find_nodes(op="placeholder"), inputs))
    for match in covers:
        if match.call in (calls.norm_linear, calls.norm_gated, calls.norm_linears) and match.args[1] in of:
            for w in _weights(match):
                if w in of:
                    folded(of[w], of[match.args[1]], make=True)
