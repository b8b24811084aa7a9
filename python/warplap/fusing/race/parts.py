"""What the parts of a graph take, measured once: nodes of a cover one after another as torch runs them, and our call in
their place; forward and backward where gradients are wanted. This orders partitions; who is kept is decided by whole
chains."""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch.fx import Interpreter, Node

from ...training.steps import IN_A_ROW
from ..matching.match import Match
from ..plan import Plan, Times
from .whole import flat, gpu_of, often, seconds_of

_log = logging.getLogger("warplap")

# Seconds of repeats that a part has.
_EACH = 0.02

# More than the ticks of any GPU in a second.
_TICKS = 3e9

Run = Callable[[], Any]


def timed(plan: Plan, inputs: Sequence[Any], recorded: bool = False, kinds: Sequence[str] | None = None) -> Times:
    """The times of all kinds, or of some, each at its first place. A kind whose call is refused takes for ever. Where
    CUDA graphs are ``recorded``, what the host does in a call counts for nothing."""
    asked = {name: founds for name, founds in plan.kinds.items() if kinds is None or name in kinds}
    first: dict[Node, list[tuple[str, Match]]] = {founds[0].nodes[-1]: [] for founds in asked.values()}
    for name, founds in asked.items():
        first[founds[0].nodes[-1]].append((name, founds[0]))
    walk = _Walk(plan, first, gpu_of(inputs), recorded)
    walk.run(*map(_leaf, inputs))
    alone, together = walk.alone, walk.together
    for founds in asked.values():  # the same layer a second time takes as long
        for result in founds[1:]:
            alone.update((node, alone[like]) for node, like in zip(result.nodes, founds[0].nodes) if like in alone)
    return alone, together


def _leaf(t: Any) -> Any:
    """A tensor without what it was computed of. Parameters stay what they are: weights that are one may be folded."""
    if not isinstance(t, Tensor) or isinstance(t, torch.nn.Parameter):
        return t
    return t.detach().requires_grad_(t.requires_grad)


class _Walk(Interpreter):
    """Runs a graph node by node, and at the last node of a cover times it."""

    def __init__(
        self, plan: Plan, at: dict[Node, list[tuple[str, Match]]], device: torch.device | None, recorded: bool
    ) -> None:
        super().__init__(plan.module, garbage_collect_values=False)
        self.alone: dict[Node, float] = {}
        self.together: dict[str, float] = {}
        self._at, self._device, self._recorded = at, device, recorded
        # What is read for the last time: by a node, or by the timing of a cover that ends with it.
        self._ends: dict[Node, list[Node]] = {}
        last: dict[Node, Node] = {}
        for node in plan.module.graph.nodes:
            for read in node.all_input_nodes:
                last[read] = node
            for _, result in at.get(node, ()):
                for inner in result.nodes:
                    for read in inner.all_input_nodes:
                        last[read] = node
        for read, node in last.items():
            self._ends.setdefault(node, []).append(read)

    def run_node(self, n: Node) -> Any:
        result = torch.fx.node.map_aggregate(super().run_node(n), _leaf)
        self.env[n] = result
        for name, cover in self._at.get(n, ()):
            self._time(name, cover)
        for read in self._ends.get(n, ()):
            self.env.pop(read, None)
        return result

    def _time(self, name: str, cover: Match) -> None:
        for node in cover.nodes:
            if node not in self.alone:
                args, kwargs = self.fetch_args_kwargs_from_env(node)
                run = lambda: getattr(self, node.op)(node.target, args, kwargs)
                self.alone[node] = self._seconds(run, (args, kwargs))
        args = torch.fx.node.map_arg(cover.args, lambda n: self.env[n])
        # What nobody else reads has no gradient.
        read = [bool(set(node.users) - set(cover.nodes)) for node in cover.gives]
        run = lambda: [t for t, is_read in zip(flat(cover.call(*args)), read) if is_read]
        try:
            self.together[name] = self._seconds(run, args)
        except Exception as why:  # a call that our operators refuse is no cover
            _log.info("%s: is left to torch: %s", name, str(why).partition("\n")[0])
            self.together[name] = float("inf")

    def _seconds(self, run: Run, args: Any) -> float:
        step = _step(run, args)
        # A step of one part waits for torch's engine by itself, as no part of a program does.
        return _seconds(step or run, self._device, self._recorded or step is not None)


def _step(run: Run, args: Any) -> Run | None:
    """The run with its gradients; None where none are wanted."""
    wanted: list[Tensor] = []
    torch.fx.node.map_aggregate(args, lambda t: wanted.append(t) if isinstance(t, Tensor) and t.requires_grad else None)
    differentiable = lambda: [t for t in flat(run()) if isinstance(t, Tensor) and t.requires_grad]
    along = [torch.ones_like(t) for t in differentiable()] if wanted else []
    if not along:
        return None
    return lambda: torch.autograd.grad(differentiable(), wanted, along, allow_unused=True)


def _seconds(run: Run, device: torch.device | None, by_device: bool) -> float:
    """The shortest of a few rounds; on a GPU each is several runs in a row, as in a program. The first run may race."""
    run()
    times = 1 if device is None else often(run, device)
    clock = lambda: seconds_of(run, times, device)
    if device is not None and by_device:
        host = IN_A_ROW * clock()
        clock = lambda: _device_seconds(run, host, device)
    rounds: list[float] = []
    began = time.perf_counter()
    while len(rounds) < 50 and (len(rounds) < 3 or time.perf_counter() - began < _EACH):
        rounds.append(clock())
    return min(rounds)


def _device_seconds(run: Run, host: float, device: torch.device) -> float:
    """What a run takes on a GPU by itself, however long the host needs for it: the GPU is busy until several runs wait
    for it in a row, which take the host so many seconds. Nothing is captured for this: after a capture that failed,
    torch refuses to draw random numbers."""
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.device(device):
        torch.cuda._sleep(int(host * _TICKS))
        began.record()
        for _ in range(IN_A_ROW):
            run()
        ended.record()
        ended.synchronize()
    return began.elapsed_time(ended) * 1e-3 / IN_A_ROW
