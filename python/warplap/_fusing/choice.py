"""The race of a graph's partitions, each as the whole chain that a program runs: beside Inductor with the graph as it
is, and beside eager. Nothing that is slower than Inductor is kept.

It is decided at the first call, not while torch traces: real tensors are there, and nobody waits for a graph that is
never run.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter

from .. import _callables, _modes, _warplap
from .parts import timed
from .plan import Partition, Plan
from .story import Decision, Lane, remember

_log = logging.getLogger("warplap")

Run = Callable[..., Any]

# Partitions that race as whole chains, and that are told by their parts.
_RACED, _TOLD = 4, 16

# The share of its time that a winner must take from Inductor's, or users get what they would have without us.
_AHEAD = 0.01

# Calls in a row on a GPU: the host runs ahead of it, as in a program.
_IN_A_ROW = 8


def backend(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Run:
    """What ``torch.compile(backend="warplap")`` calls with a traced graph. ``mode`` and ``options`` are Inductor's."""
    plan = Plan(module)
    inductor = Inductor(mode, options)
    if plan.acts or not plan.kinds:
        return inductor.here(module, inputs)
    return Chooser(plan, inductor)


class Inductor:
    """Who compiles what is not covered."""

    def __init__(self, mode: str | None, options: dict[str, Any] | None) -> None:
        from torch._inductor import list_mode_options

        self._patches = {**(list_mode_options(mode) if mode and mode != "default" else {}), **(options or {})}

    def here(self, module: GraphModule, inputs: Sequence[Any]) -> Run:
        """The graph compiled as torch would, with all that the tracer knows of it."""
        from torch._inductor.compile_fx import compile_fx

        run: Any = compile_fx(module, list(inputs), config_patches=self._patches or None)
        return run  # type: ignore[no-any-return]

    def later(self, module: GraphModule, inputs: Sequence[Any]) -> Run:
        """The same after tracing. Sizes that may change are asked for anew."""
        if any(isinstance(i, (int, torch.SymInt)) for i in inputs):
            return torch.compile(module, dynamic=True, options=self._patches or None)
        return self.here(module, inputs)


class Chooser:
    """A graph that finds out at its first call who runs it."""

    def __init__(self, plan: Plan, inductor: Inductor) -> None:
        self._plan, self._inductor = plan, inductor
        self._run: Run | None = None
        self._meanwhile: Run | None = None
        self.decision: Decision | None = None

    def __call__(self, *inputs: Any) -> Any:
        run = self._choose(inputs) if self._run is None else self._run
        return run(*inputs)

    def _choose(self, inputs: tuple[Any, ...]) -> Run:
        if self._meanwhile is not None and _callables.capturing():
            return self._meanwhile
        self.decision = decision = _decide(self._plan, self._inductor, inputs)
        remember(decision)
        _log.info("%s", decision)
        form = Form(self._plan, decision.winner, decision.form == "inductor", self._inductor)
        run = form.built(inputs)
        if decision.is_final:
            self._run, self._meanwhile = run, None
        else:
            self._meanwhile = run
        return run


class Form:
    """A partition, and who runs the rest of the graph."""

    def __init__(self, plan: Plan, partition: Partition | None, compiled: bool, inductor: Inductor) -> None:
        self.plan, self.partition, self.compiled, self._inductor = plan, partition, compiled, inductor
        self.kinds = () if partition is None else partition.kinds
        self.name = "inductor" if compiled else "eager"
        if self.kinds:
            self.name = " + ".join(self.kinds)

    @property
    def candidate(self) -> tuple[str, dict[str, Any], str]:
        """How the store calls it."""
        version = f"warplap {_warplap.__version__} torch {torch.__version__}"
        if not self.kinds:
            return self.name, {}, version
        return "fused", {"covers": " ".join(self.kinds), "rest": "inductor" if self.compiled else "eager"}, version

    def module(self, calm: bool = False) -> GraphModule:
        """The graph in this form; a copy, since compilers change what they are given."""
        return self.plan.rewritten(() if self.partition is None else self.partition.covers, calm)

    def built(self, inputs: Sequence[Any]) -> Run:
        return self._inductor.later(self.module(), inputs) if self.compiled else self.module().forward


def _decide(plan: Plan, inductor: Inductor, inputs: tuple[Any, ...]) -> Decision:
    """Who runs the graph: as the store says, by a race, or Inductor."""
    key = plan.text(inputs)
    forms = [Form(plan, None, True, inductor), Form(plan, None, False, inductor)]
    fused = lambda partitions: [Form(plan, p, True, inductor) for p in partitions if p.kinds]
    mode = _warplap.mode()

    def compete(lanes: list[Form], runs: list[Run], reference: Run, measure: bool) -> Any:
        return _callables.compete(
            "graph", key, [form.candidate for form in lanes], runs, reference, (), {},
            measure=measure, budget=_modes.budget(), by_wall=True, tolerance=plan.tolerance(inputs),
        )  # fmt: skip

    def told(form: Form, how: str, is_final: bool = True) -> Decision:
        return Decision(key, plan, form.partition, how, "inductor" if form.compiled else "eager", is_final)

    if mode == "off":
        return told(forms[0], "the mode is off")
    listed = [*forms, *fused(_kept(plan, key))]
    winner, found = compete(listed, [_nothing for _ in listed], _nothing, False)
    if found is not None:
        return told(_ahead(listed, winner, found), "from the store")
    if mode != "tune":
        return told(forms[0], f"the mode is {mode} and the store does not know the graph")
    if _callables.capturing():
        return told(forms[0], "a stream is being captured, and nothing is measured meanwhile", False)
    try:
        given = drawn(inputs)
        partitions = plan.partitions(timed(plan, given), _TOLD)
        legal = [p for p in partitions if math.isfinite(p.seconds)]
        few = [p for p in legal if p.kinds][:_RACED]
        lanes, runs, left = _ready([*forms, *fused(few)], given)
        winner, found = compete(lanes, runs, _reference(plan, given), True) if lanes else (0, None)
    except (RuntimeError, MemoryError) as why:  # no memory for other inputs, or nobody was right with them
        reason = str(why).partition("\n")[0]
        _log.warning("graph:%s: it was not raced: %s; Inductor runs it", key, reason)
        return told(forms[0], f"not raced: {reason}")
    chosen = forms[0] if not lanes or found is None else _ahead(lanes, winner, found)
    decision = told(chosen, "nothing could be raced" if found is None else "raced")
    decision.lanes = [*_lanes(lanes, found), *left]
    decision.unmeasured = [p for p in legal if p not in few]
    return decision


def _nothing() -> None:
    return None


def _kept(plan: Plan, key: str) -> list[Partition]:
    """The partition that the store names, where this graph has it: there may be more than can be listed."""
    config = json.loads(_warplap.kept("graph", key) or "{}")
    found = plan.partition(str(config.get("covers", "")).split())
    return [] if found is None else [found]


def _ahead(forms: list[Form], winner: int, found: dict[str, Any]) -> Form:
    """The winner, where it is ahead of Inductor by more than nothing; else Inductor."""
    by_inductor = next((i for i, form in enumerate(forms) if form.name == "inductor"), None)
    if by_inductor is None:
        return forms[winner]
    theirs = _lanes([forms[by_inductor]], found)[0].us
    ours = found["edition"]["verdict"]["median_us"]
    return forms[winner] if theirs is None or ours < (1.0 - _AHEAD) * theirs else forms[by_inductor]


def _lanes(forms: list[Form], found: dict[str, Any] | None) -> list[Lane]:
    """What a race said of everyone."""
    lanes = []
    trials = [] if found is None else found["edition"]["trials"]
    for form in forms:
        name, config, _ = form.candidate
        lane = Lane(form.name, form.kinds)
        for trial in trials:
            if trial["variant"] == name and trial["config"] == config:
                rejected = trial.get("rejected") or {}
                measured = trial.get("measured") or rejected.get("measurement")
                lane.us = None if measured is None else measured["median_us"]
                lane.why = rejected.get("why", "") if measured is None else ""
        lanes.append(lane)
    return lanes


def _ready(forms: list[Form], given: tuple[Any, ...]) -> tuple[list[Form], list[Run], list[Lane]]:
    """Those that can be built and run, what runs each once as the program does, and why others cannot."""
    ready: list[Form] = []
    runs: list[Run] = []
    left: list[Lane] = []
    for form in forms:
        try:
            run = _Whole(form, given)
            run()  # compiles, and lets every part find its own kernel
            run()
        except Exception as why:
            left.append(Lane(form.name, form.kinds, None, f"{type(why).__name__}: {why}".partition("\n")[0][:160]))
            continue
        ready.append(form)
        runs.append(run)
    return ready, runs, left


class _Whole:
    """A graph run as its program runs it: with its gradients where they are wanted, several times in a row on a GPU."""

    def __init__(self, form: Form, given: tuple[Any, ...]) -> None:
        self._run, self._random = form.built(given), form.plan.draws
        self._given = given
        self._device = next((t.device for t in given if isinstance(t, Tensor) and t.is_cuda), None)
        if self._random and form.kinds:
            _prove_calm(form, given)

    def __call__(self) -> tuple[Tensor, ...]:
        for _ in range(1 if self._device is None else _IN_A_ROW):
            found = step(self._run, self._given)
        if self._device is not None:
            torch.cuda.current_stream(self._device).synchronize()
        return () if self._random else found  # chance has no right answer: that was proved without it


def step(run: Run, given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """What a graph gives, and its gradients along ones."""
    outputs = tuple(t for t in _flat(run(*given)) if isinstance(t, Tensor))
    wanted = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    along = [t for t in outputs if t.requires_grad]
    if not (wanted and along and torch.is_grad_enabled()):
        return outputs
    ones = [torch.ones_like(t) for t in along]
    gradients = torch.autograd.grad(along, wanted, ones, allow_unused=True)
    return *(t.detach() for t in outputs), *(g for g in gradients if g is not None)


def _flat(found: Any) -> Sequence[Any]:
    return found if isinstance(found, (tuple, list)) else (found,)


def _reference(plan: Plan, given: tuple[Any, ...]) -> Run:
    """The right answer: the graph as it is, in double precision where its nodes take that."""
    if plan.draws:
        return lambda: ()
    try:
        right = _in_double(plan.module, given)
    except (RuntimeError, TypeError):  # a type is written into the graph
        right = step(plan.module.forward, given)
    return lambda: right


def _in_double(module: GraphModule, given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    wide = tuple(
        t.detach().double().requires_grad_(t.requires_grad) if isinstance(t, Tensor) and t.is_floating_point() else t
        for t in given
    )
    found = step(lambda *inputs: Interpreter(module).run(*inputs), wide)
    narrow = step(module.forward, given)
    return tuple(t.to(like.dtype) for t, like in zip(found, narrow))


def _prove_calm(form: Form, given: tuple[Any, ...]) -> None:
    """Holds a graph with chance to the right answer without it."""
    from .._rig import share_of_tolerance

    got = step(form.module(calm=True).forward, given)
    right = _in_double(form.plan.rewritten((), calm=True), given)
    for i, (a, b) in enumerate(zip(got, right)):
        if not share_of_tolerance(a, b, form.plan.tolerance(given)) <= 1.0:
            raise ArithmeticError(f"result {i} differs from the right one, with chance left out")


def drawn(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Random tensors that lie in memory as those do; whole numbers, truths and what is not finite stay the caller's."""
    chance = torch.Generator().manual_seed(18)

    def draw(t: Any) -> Any:
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.layout != torch.strided or t.numel() == 0:
            return t
        if not bool(torch.isfinite(t).all()):
            return t.detach()
        extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
        flat = torch.randn(extent, generator=chance).mul_(t.shape[-1] ** -0.5 if t.ndim == 2 else 1.0)
        made = flat.to(t.dtype).to(t.device).as_strided(t.shape, t.stride())
        return made.requires_grad_(t.requires_grad)

    with torch.no_grad():
        return tuple(draw(t) for t in inputs)
