"""A traced graph, everything our operators could cover of it, and its rewriting. What stands in a graph more than once
in the same sizes is one question."""

from __future__ import annotations

import hashlib
import operator
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from .. import _warplap
from ..callables.harness import tolerance_of
from ..operator import autocast
from .matching import calls
from .matching.constant_masks import name_masks
from .matching.match import Match
from .matching.node_kinds import acts, draws, is_spare, is_view, label, value
from .matching.patterns import fusion_matches

# Kinds beyond these are left to Inductor: each doubles the partitions.
_KINDS = 24

# Seconds that a graph's parts take: of nodes by themselves, and of kinds of covers.
Times = tuple[dict[Node, float], dict[str, float]]


class Partition(NamedTuple):
    """A legal choice: kinds by name, the places that are covered, and what all parts take."""

    kinds: tuple[str, ...]
    covers: tuple[Match, ...]
    seconds: float


class Plan:
    """What a graph could become. ``kinds`` maps a name to all places where it stands in the graph."""

    def __init__(self, module: GraphModule, frozen: bool = False) -> None:
        self.module, self.frozen = module, frozen
        if _calm(module.graph, lambda node: not draws(node)):  # as in inference, where it would hide what is around it
            module.recompile()
        if name_masks(module.graph) + _without_spare(module.graph):
            module.recompile()
        self.nodes = [n for n in module.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
        self.draws = any(draws(n) for n in self.nodes)
        self.acts = [n for n in self.nodes if acts(n)]
        self._places = {n: i for i, n in enumerate(self.nodes)}
        self.kinds: dict[str, list[Match]] = {}
        self.cut: list[tuple[Match, Node]] = []
        numbers: dict[str, dict[str, str]] = {}
        for result in fusion_matches(self.nodes, frozen):
            between = self._acts_between(result)
            if between is not None:
                self.cut.append((result, between))
                continue
            same = numbers.setdefault(result.template, {})
            signature = _signature(result)
            if signature not in same:
                same[signature] = f"{result.template}.{len(same)}" if same else result.template
            self.kinds.setdefault(same[signature], []).append(result)
        self.kinds = dict(list(self.kinds.items())[:_KINDS])

    def _acts_between(self, result: Match) -> Node | None:
        """A node that acts between the first and the last of a cover: what is before it stays before it. The graph is
        one all the same, so that compilers see it whole."""
        places = [self._places[n] for n in result.nodes]
        return next((n for n in self.acts if min(places) <= self._places[n] <= max(places)), None)

    def partitions(self, times: Times | None, most: int) -> list[Partition]:
        """The legal partitions, cheapest first; the one that covers nothing is among them."""
        alone, together = times or ({}, {})
        last = {n for n in self.nodes if any(user.op == "output" for user in n.users)}
        nodes = []
        for node in self.nodes:
            inputs = [self._places[i] for i in node.all_input_nodes if i in self._places]
            nodes.append((inputs, alone.get(node, 0.0), node in last))
        listed = [(name, result) for name, founds in self.kinds.items() for result in founds]
        names = list(self.kinds)
        numbers = lambda nodes: [self._places[n] for n in nodes]
        taken = lambda name: together.get(name, 0.0)
        report = [(names.index(name), numbers(f.nodes), numbers(f.gives), taken(name)) for name, f in listed]
        return [
            Partition(tuple(names[k] for k in kinds), tuple(listed[c][1] for c in covers), seconds)
            for kinds, covers, seconds in _warplap.partitions(nodes, report, most)
        ]

    def partition(self, kinds: Sequence[str]) -> Partition | None:
        """The one that takes exactly these kinds, where it is legal."""
        if not all(kind in self.kinds for kind in kinds):
            return None
        # Nothing is cheaper than to take them all.
        result = self.partitions(({}, {kind: -1.0 if kind in kinds else 1.0 for kind in self.kinds}), 2)[0]
        return result if set(result.kinds) == set(kinds) else None

    def rewritten(self, covers: Sequence[Match], calm: bool = False) -> GraphModule:
        """A copy of the graph with our calls in the place of what they cover; ``calm`` leaves chance out of it."""
        graph = Graph()
        copies: dict[Node, Any] = {}
        graph.output(graph.graph_copy(self.module.graph, copies))
        swap: Callable[[Any], Any] = lambda a: torch.fx.node.map_arg(a, lambda n: copies[n])
        replaced: dict[Node, Node] = {}
        for result in covers:
            anchor = copies[result.nodes[-1]]
            args = swap(result.args)
            if calm and result.call is calls.front_norm:
                args = (*args[:-1], 0.0)
            args = torch.fx.node.map_arg(args, lambda n: replaced.get(n, n))
            with graph.inserting_before(anchor):
                call = graph.call_function(result.call, args)
                arguments = [call]
                if len(result.gives) > 1:
                    arguments = [graph.call_function(operator.getitem, (call, i)) for i in range(len(result.gives))]
            for old, new in zip(result.gives, arguments):
                was = copies[old]
                new.meta["example_value"] = old.meta.get("example_value")
                was.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
                replaced[was] = new
            for old in reversed(result.nodes):
                if not copies[old].users:
                    graph.erase_node(copies[old])
        if calm:
            _calm(graph, draws)
        module = GraphModule(self.module, graph)
        _sorted(graph)
        module.recompile()
        self._log_inputs(module)
        return module

    def _log_inputs(self, module: GraphModule) -> None:
        """What the tracer left beside its graph goes on to a copy: by it compilers tell weights, whose memory stays,
        from what is new at each call and has to be copied into a CUDA graph."""
        module.meta.update(self.module.meta)
        known = getattr(self.module, "_param_name_to_source", None)
        if known is not None:
            module._param_name_to_source = known
        inputs = (graph.find_nodes(op="placeholder") for graph in (self.module.graph, module.graph))
        for old, new in zip(*inputs):
            keep_source(old, new)

    def tolerance(self, inputs: Sequence[Any]) -> float:
        """How far a right answer may be off: as the narrowest type that the graph computes in says."""
        kinds = {t.dtype for t in (*inputs, *map(value, self.nodes)) if isinstance(t, Tensor)}
        device = next((t.device.type for t in inputs if isinstance(t, Tensor)), "cpu")
        to = autocast.region(device)
        if to is not None:
            kinds.add(to)
        allowed = [tolerance_of(kind) for kind in kinds if kind.is_floating_point]
        return max(allowed, default=tolerance_of(torch.float32))

    def text(self, inputs: Sequence[Any]) -> str:
        """What a decision is kept by: the graph, and its tensors with sizes that change rounded up to powers of two."""
        numbers: dict[Node, int] = {}
        lines = []
        for node in self.module.graph.nodes:
            numbers[node] = len(numbers)
            args: Any = () if is_view(node) else (node.args, node.kwargs)
            reads = ",".join(str(numbers[n]) for n in node.all_input_nodes)
            result = value(node)
            kind = "" if result is None else f"{result.dtype}/{result.ndim}"
            does = "" if node.op in ("placeholder", "get_attr") else f"{label(node)}({plain(args)})"
            lines.append(f"{node.op} {does} {reads} {kind}")
        structure = hashlib.blake2s("\n".join(lines).encode()).hexdigest()[:16]
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        wants = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        sizes = hashlib.blake2s(" ".join(map(_rounded, tensors)).encode()).hexdigest()[:16]
        device = next((t.device.type for t in tensors), "cpu")
        to = str(autocast.region(device) or "none").removeprefix("torch.")
        key = f"graph={structure},sizes={sizes},step={str(wants).lower()},cast={to},on={device}"
        return key + (",frozen=true" if self.frozen else "")


def keep_source(old: Node, new: Node) -> None:
    """Lets a copy of an input know what the tracer knew of it."""
    if hasattr(old, "_dynamo_source"):
        new._dynamo_source = old._dynamo_source


def _calm(graph: Graph, which: Callable[[Node], bool]) -> bool:
    """Takes dropouts out of a graph; whether there were any."""
    result = [node for node in graph.nodes if label(node) == "dropout" and node.args and which(node)]
    for node in result:
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return bool(result)


def _without_spare(graph: Graph) -> bool:
    """Takes out what computes for nobody; whether there was any."""
    result = False
    for node in reversed(graph.nodes):
        if is_spare(node):
            graph.erase_node(node)
            result = True
    return result


def _sorted(graph: Graph) -> None:
    """Puts nodes behind what they read. None moves past one that acts: what a call covers, and so what it reads, lies
    on one side of it."""
    order: dict[Node, None] = {}

    def put(node: Node) -> None:
        for read in node.all_input_nodes:
            if read not in order:
                put(read)
        order[node] = None

    for node in graph.nodes:
        if node not in order:
            put(node)
    *before, end = order
    for node in before:
        end.prepend(node)


def _rounded(t: Tensor) -> str:
    """A weight as it is; of what flows through a graph the last size, and the others as powers of two."""
    sizes = [int(n) for n in t.shape]
    if not isinstance(t, torch.nn.Parameter):
        sizes[:-1] = [1 << max(n - 1, 0).bit_length() for n in sizes[:-1]]
    return f"{t.dtype}[{'x'.join(map(str, sizes))}]"


def plain(args: Any) -> str:
    """Arguments without their nodes and sizes."""
    return repr(torch.fx.node.map_aggregate(args, lambda a: "_" if isinstance(a, (Node, torch.Size)) else a))


def _signature(result: Match) -> str:
    """What makes two places one question: types, sizes, how tensors lie, and numbers."""

    def part(arg: Any) -> str:
        t = value(arg)
        if t is None:
            return repr(arg)
        return f"{t.dtype}{tuple(t.shape)}{tuple(t.stride())}"

    return f"{[part(a) for a in result.args]} {len(result.nodes)}"
