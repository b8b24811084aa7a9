"""The layer that a graph repeats. A decoder of eighty layers is one question about one of them: it is compiled and
raced by itself, and what wins there is taken in all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from ..matching.constant_masks import WINDOW
from ..matching.node_kinds import label, value
from ..plan import Partition, Plan, keep_source, plain
from .parts import timed

# Copies that a layer has at least, and its nodes; periods that are looked at.
_COPIES, _NODES, _PERIODS = 3, 6, 16

# A cover that lies on both sides of a cut weighs as much as so many tensors that cross it.
_COVER = 100


class Layer(NamedTuple):
    """One copy of what is repeated."""

    copies: int
    nodes: list[Node]
    reads: list[Node]
    """What comes in from outside, in the order of its graph's inputs."""
    plan: Plan
    same: dict[Node, Node]
    """A node of the layer's own graph for each of the whole one."""

    def inputs(self, whole: Plan, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """What this copy is given in a run of the whole graph."""
        walk = _Until(whole.module, self.reads)
        try:
            with torch.no_grad():
                walk.run(*arguments)
        except _Enough:
            pass
        return tuple(_leaf(walk.seen[read], read) for read in self.reads)

    def partition(self, whole: Plan, chosen: Partition | None, arguments: tuple[Any, ...], recorded: bool) -> Partition:
        """The partition of the whole graph that has in every layer what won in one; elsewhere its parts say."""
        taken = {frozenset(result.nodes) for result in (() if chosen is None else chosen.covers)}
        inside, forced = set(), {}
        for kind, founds in whole.kinds.items():
            own = [f for f in founds if all(node in self.same for node in f.nodes)]
            if own:
                inside.add(kind)
                is_taken = any(frozenset(self.same[n] for n in f.nodes) in taken for f in own)
                forced[kind] = -1.0 if is_taken else float("inf")
        alone, together = timed(whole, arguments, recorded, [kind for kind in whole.kinds if kind not in inside])
        return whole.partitions((alone, {**together, **forced}), 2)[0]  # the one that covers nothing is always listed


def repeated(plan: Plan) -> Layer | None:
    """The layer that fills most of a graph; None where nothing is repeated often enough."""
    nodes, places = plan.nodes, {node: i for i, node in enumerate(plan.nodes)}
    signs = [_sign(node) for node in nodes]
    last: dict[Any, int] = {}
    periods: Counter[int] = Counter()
    for i, sign in enumerate(signs):
        if sign in last:
            periods[i - last[sign]] += 1
        last[sign] = i
    best = (0, 0, 0)  # nodes that repeat, period, first of them
    for period, _ in periods.most_common(_PERIODS):
        begin, length = _run(nodes, places, signs, period) if period >= _NODES else (0, 0)
        if length // period + 1 >= _COPIES and (length, -period) > (best[0], -best[1]):
            best = (length, period, begin)
    length, period, begin = best
    if not period:
        return None
    cut = min(range(begin, min(begin + period, begin + length) + 1), key=lambda cut: _weight(plan, places, cut))
    return _taken_out(plan, nodes[cut : cut + period], length // period + 1)


def _sign(node: Node) -> Any:
    """What two nodes that compute the same have in common."""
    result = value(node)
    size = None if result is None else (result.dtype, tuple(map(str, result.shape)), result.requires_grad)
    return node.op, label(node), plain((node.args, node.kwargs)), size, node.meta.get(WINDOW)


def _run(nodes: list[Node], places: dict[Node, int], signs: list[Any], period: int) -> tuple[int, int]:
    """Where the longest row of nodes begins that all stand once more a period later, and how long it is."""
    best, begin = (0, 0), 0
    for i in range(len(nodes) - period + 1):
        is_same = i + period < len(nodes) and signs[i] == signs[i + period]
        if not is_same or not _reads_alike(nodes[i], nodes[i + period], places, period):
            best, begin = max(best, (i - begin, begin), key=lambda run: run[0]), i + 1
    return best[1], best[0]


def _reads_alike(one: Node, other: Node, places: dict[Node, int], period: int) -> bool:
    """Whether they read what is theirs: the same, weights of one size, or what stands a period apart."""
    if len(one.all_input_nodes) != len(other.all_input_nodes):
        return False
    for a, b in zip(one.all_input_nodes, other.all_input_nodes):
        if a is b:
            continue
        if a in places or b in places:
            if a not in places or b not in places or places[b] - places[a] != period:
                return False
        elif _sign(a)[3] != _sign(b)[3]:
            return False
    return True


def _weight(plan: Plan, places: dict[Node, int], cut: int) -> int:
    """How much a cut before this place takes apart."""
    crossing = sum(
        any(places.get(user, cut) >= cut for user in node.users) for node in plan.nodes[:cut] if node.users
    )
    covers = sum(
        min(places[n] for n in result.nodes) < cut <= max(places[n] for n in result.nodes)
        for founds in plan.kinds.values()
        for result in founds
    )
    return crossing + _COVER * covers


def _taken_out(plan: Plan, nodes: list[Node], copies: int) -> Layer | None:
    """A graph of one layer, whose inputs are what it reads from outside and whose results are what others read."""
    names = [label(node) for node in nodes]
    for state in ("autocast", "grad_enabled"):  # what is switched on here and off elsewhere
        if sum(state in name for name in names) % 2:
            return None
    own, graph = set(nodes), Graph()
    reads = list(dict.fromkeys(read for node in nodes for read in node.all_input_nodes if read not in own))
    same: dict[Node, Node] = {}
    for read in reads:
        same[read] = graph.placeholder(read.name)
        same[read].meta = dict(read.meta)
        keep_source(read, same[read])
    for node in nodes:
        same[node] = graph.node_copy(node, lambda read: same[read])
    gives = [node for node in nodes if any(user not in own for user in node.users)]
    graph.output(tuple(same[node] for node in gives))
    if any(node.op == "get_attr" for node in reads) or not gives:
        return None
    module = GraphModule(plan.module, graph)
    module.meta.update(plan.module.meta)
    return Layer(copies, nodes, reads, Plan(module, plan.frozen), {node: same[node] for node in nodes})


def _leaf(arguments: Any, node: Node) -> Any:
    """What a run computed, as an input that wants gradients where the traced program does."""
    if not isinstance(arguments, torch.Tensor) or isinstance(arguments, torch.nn.Parameter):
        return arguments
    wants = value(node)
    return arguments.detach().requires_grad_(wants is not None and wants.requires_grad)


class _Enough(Exception):
    """Everything that was wanted is computed."""


class _Until(Interpreter):
    """Runs a graph until all of some nodes are computed."""

    def __init__(self, module: GraphModule, wanted: list[Node]) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.seen: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n in self._wanted:
            self.seen[n] = result
            if len(self.seen) == len(self._wanted):
                raise _Enough
        return result
