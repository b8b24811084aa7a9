"""What was decided about a graph: its nodes, who computes them, and what every other choice took."""

from __future__ import annotations

import dataclasses

from .matching import near_misses
from .matching.node_kinds import label
from .plan import Partition, Plan


@dataclasses.dataclass
class Contestant:
    """One choice that raced: what it covers, what it takes, or why it left."""

    name: str
    kinds: tuple[str, ...]
    us: float | None = None
    why: str = ""
    times: float | None = None
    """How many times the best it takes, where only that is known."""
    is_tie: bool = False
    """Whether the race saw no difference between it and the winner."""

    def behind(self, best: float | None) -> float | None:
        """How many times the best it takes."""
        return self.times if self.us is None or not best else self.us / best


@dataclasses.dataclass
class Decision:
    """Printing it draws the graph with its boundaries, and the race."""

    key: str
    plan: Plan = dataclasses.field(repr=False)
    winner: Partition | None
    how: str
    """In words: raced, from the store, told by its parts, or why nothing was measured."""
    form: str
    """Who runs what is not covered: inductor or eager."""
    is_final: bool = True
    """Whether it holds for later calls too."""
    contestants: list[Contestant] = dataclasses.field(default_factory=list)
    unmeasured: list[Partition] = dataclasses.field(default_factory=list)
    layer: Decision | None = None
    """What was decided about the layer that the graph repeats."""
    copies: int = 1
    """How often a graph stands in the one that it is a layer of."""

    def __str__(self) -> str:
        parts = *self._drawn(), *self._raced(), *self._predicted(), *self._left(), *self._layer()
        return "\n".join([self.key, f"  {self.how}", "", *parts])

    @property
    def is_predicted(self) -> bool:
        """Whether its times are told by its parts, and nothing was raced."""
        return self.how.startswith("told by its parts")

    @property
    def taken(self) -> str:
        """What the choice that runs is called among the lanes."""
        kinds = () if self.winner is None else self.winner.kinds
        return " + ".join(kinds) or self.form

    def _drawn(self) -> list[str]:
        """A line a node, with a bracket around what one call computes."""
        covers = () if self.winner is None else self.winner.covers
        of = {node: (i, result) for i, result in enumerate(covers) for node in result.nodes}
        wide = max((len(node.name) for node in self.plan.nodes), default=0)
        does = max((len(label(node)) for node in self.plan.nodes), default=0)
        lines = []
        for node in self.plan.nodes:
            mark, who = " ", self.form
            if node in of:
                _, result = of[node]
                first, last = node is result.nodes[0], node is result.nodes[-1]
                mark = "─" if first and last else "┌" if first else "└" if last else "│"
                who = f"warplap {result.template}" if last else ""
            lines.append(f"  {node.name:<{wide}}  {label(node):<{does}}  {mark} {who}".rstrip())
        return lines

    def _raced(self) -> list[str]:
        if not self.contestants:
            return []
        best = min((contestant.us for contestant in self.contestants if contestant.us is not None), default=None)
        wide = max(len(contestant.name) for contestant in self.contestants)
        lines = ["", "  as a whole, told by the parts" if self.is_predicted else "  raced as a whole"]
        for contestant in sorted(self.contestants, key=lambda contestant: contestant.behind(best) or float("inf")):
            behind = contestant.behind(best)
            us = "" if contestant.us is None else f"{contestant.us:10.1f} µs"
            times = "" if behind is None else f"{behind:5.2f}×"
            why = contestant.why or ("no difference was seen" if contestant.is_tie else "")
            lines.append(f"  {contestant.name:<{wide}}  {us:13}  {times:6}  {why}".rstrip())
        return lines

    def _predicted(self) -> list[str]:
        """Partitions that were not raced, by what their parts took."""
        lines = [] if not self.unmeasured else ["", "  by their parts, not raced"]
        for partition in self.unmeasured[:8]:
            lines.append(f"  {partition.seconds * 1e6:10.1f} µs  {' + '.join(partition.kinds) or 'nothing covered'}")
        return lines

    def _left(self) -> list[str]:
        """Nodes that an operator of ours could compute, and why none does."""
        lines = near_misses.left(self.plan)
        return ["", *(f"  {line}" for line in lines)] if lines else []

    def _layer(self) -> list[str]:
        if self.layer is None:
            return []
        nodes = len(self.layer.plan.nodes)
        return ["", f"  decided by one layer of {nodes} operations, which it repeats {self.layer.copies} times:",
                *(f"    {line}".rstrip() for line in str(self.layer).splitlines())]  # fmt: skip


_made: list[Decision] = []

# Decisions that are kept for telling.
_MOST = 256


def remember(decision: Decision) -> None:
    _made.append(decision)
    del _made[:-_MOST]


def graphs() -> list[Decision]:
    """What was decided in this process, oldest first: one for each graph that ``torch.compile(backend="warplap")`` or
    :func:`fuse` met. Printing one draws the graph with its boundaries and what the alternatives took."""
    return list(_made)
