"""What the parts of a graph take, measured once: nodes of a cover one after another as torch runs them, and our call in
their place. This orders partitions; who is kept is decided by whole chains."""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch.fx import Interpreter, Node

from .found import Found
from .plan import Plan, Times
from .whole import gpu_of, often, seconds_of

_log = logging.getLogger("warplap")

# Seconds of repeats that a part has.
_EACH = 0.02


def timed(plan: Plan, inputs: Sequence[Any]) -> Times:
    """The times of all kinds, each at its first place. A kind whose call is refused takes for ever."""
    first: dict[Node, list[tuple[str, Found]]] = {founds[0].nodes[-1]: [] for founds in plan.kinds.values()}
    for name, founds in plan.kinds.items():
        first[founds[0].nodes[-1]].append((name, founds[0]))
    alone: dict[Node, float] = {}
    together: dict[str, float] = {}
    with torch.no_grad():
        walk = _Walk(plan, first, alone, together, gpu_of(inputs))
        # Parameters stay what they are: weights that are one may be folded.
        plain = lambda t: t.detach() if isinstance(t, Tensor) and not isinstance(t, torch.nn.Parameter) else t
        walk.run(*map(plain, inputs))
    for name, founds in plan.kinds.items():  # the same layer a second time takes as long
        for found in founds[1:]:
            alone.update((node, alone[like]) for node, like in zip(found.nodes, founds[0].nodes) if like in alone)
    return alone, together


class _Walk(Interpreter):
    """Runs a graph node by node, and at the last node of a cover times it."""

    def __init__(
        self,
        plan: Plan,
        at: dict[Node, list[tuple[str, Found]]],
        alone: dict[Node, float],
        together: dict[str, float],
        device: torch.device | None,
    ) -> None:
        super().__init__(plan.module, garbage_collect_values=False)
        self._device = device
        self._at, self._alone, self._together = at, alone, together
        # What is read for the last time: by a node, or by the timing of a cover that ends with it.
        self._ends: dict[Node, list[Node]] = {}
        last: dict[Node, Node] = {}
        for node in plan.module.graph.nodes:
            for read in node.all_input_nodes:
                last[read] = node
            for _, found in at.get(node, ()):
                for inner in found.nodes:
                    for read in inner.all_input_nodes:
                        last[read] = node
        for read, node in last.items():
            self._ends.setdefault(node, []).append(read)

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        self.env[n] = found
        for name, cover in self._at.get(n, ()):
            self._time(name, cover)
        for read in self._ends.get(n, ()):
            self.env.pop(read, None)
        return found

    def _time(self, name: str, cover: Found) -> None:
        for node in cover.nodes:
            if node not in self._alone:
                args, kwargs = self.fetch_args_kwargs_from_env(node)
                self._alone[node] = _seconds(lambda: getattr(self, node.op)(node.target, args, kwargs), self._device)
        args = torch.fx.node.map_arg(cover.args, lambda n: self.env[n])
        try:
            self._together[name] = _seconds(lambda: cover.call(*args), self._device)
        except Exception as why:  # a call that our operators refuse is no cover
            _log.info("%s: is left to torch: %s", name, str(why).partition("\n")[0])
            self._together[name] = float("inf")


def _seconds(run: Callable[[], Any], device: torch.device | None) -> float:
    """The shortest of a few rounds; on a GPU each is several runs in a row, as in a program. The first run may race."""
    run()
    times = 1 if device is None else often(run, device)
    rounds: list[float] = []
    began = time.perf_counter()
    while len(rounds) < 50 and (len(rounds) < 3 or time.perf_counter() - began < _EACH):
        rounds.append(seconds_of(run, times, device))
    return min(rounds)
