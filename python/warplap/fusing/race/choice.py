"""The race of a graph's partitions, each as the whole chain that a program runs: beside Inductor with the graph as it
is, and beside eager. Nothing that is slower than Inductor is kept.

It is decided at the first call, not while torch traces: real tensors are there, and nobody waits for a graph that is
never run.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any, Sequence

from torch.fx import GraphModule

from ... import _warplap
from ...callables import race
from ...callables.harness import share_of_tolerance
from ...tuner import modes
from ..explain import Contestant, Decision, remember
from ..matching.patterns import fold
from ..plan import Partition, Plan
from . import predict, recorded_times
from .cuda_graphs import apart
from .forms import Form, Inductor, Run
from .layers import repeated
from .parts import timed
from .whole import Changed, Whole, changed, drawn, gpu_of, in_a_row, reference

_log = logging.getLogger("warplap")

# Partitions that race as whole chains, and that are told by their parts.
_RACED, _PREDICTED = 4, 16

# Of graphs with few nodes more race: they are compiled soon, and where the host decides the sums mislead the most (of
# forty chains on a GPU the two worst choices were made where the best was the fifth by its parts).
_SHORT, _RACED_SHORT = 8, 6

# The share of its time that a winner must take from Inductor's, or users get what they would have without us.
_AHEAD = 0.01


def backend(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    freeze: bool = False,
) -> Run:
    """What ``torch.compile(backend="warplap")`` calls with a traced graph. ``mode`` and ``options`` are Inductor's;
    with ``freeze``, or Inductor's option "freezing", weights stay as they are."""
    return Chooser(Plan(module, freeze or bool((options or {}).get("freezing"))), Inductor(mode, options))


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
        if self._meanwhile is not None and race.capturing():
            return self._meanwhile
        self.decision = decision = _decide(self._plan, self._inductor, inputs)
        remember(decision)
        _log.info("%s", decision)
        form = Form(self._plan, decision.winner, decision.form == "inductor", self._inductor)
        if decision.winner is not None:
            fold(decision.winner.covers, self._plan.module.graph, inputs)
        run = form.built(inputs)
        if decision.is_final:
            self._run, self._meanwhile = run, None
        else:
            self._meanwhile = run
        return run


def _decide(plan: Plan, inductor: Inductor, inputs: tuple[Any, ...]) -> Decision:
    """Who runs the graph: as the store says, by a race, or Inductor."""
    key = plan.text(inputs) + inductor.name
    forms = [Form(plan, None, True, inductor), Form(plan, None, False, inductor)]
    fused = lambda partitions: [Form(plan, p, True, inductor) for p in partitions if p.kinds]
    mode = _warplap.mode()

    def compete(contestants: list[Form], runs: list[Run], right: Run, measure: bool) -> Any:
        return race.compete(
            "graph", key, [form.candidate for form in contestants], runs, right, (), {},
            measure=measure, budget=modes.budget(), by_wall=True, tolerance=plan.tolerance(inputs),
        )  # fmt: skip

    def decision_of(form: Form, how: str, is_final: bool = True) -> Decision:
        return Decision(key, plan, form.partition, how, "inductor" if form.compiled else "eager", is_final)

    if mode == "off":
        return decision_of(forms[0], "the mode is off")
    listed = [*forms, *fused(_kept(plan, key))]
    winner, result = compete(listed, [_nothing for _ in listed], _nothing, False)
    if result is not None:
        decision = decision_of(_ahead(listed, winner, result), "from the store")
        decision.contestants = recorded_times.contestants(result, 1 if "on=cpu" in key.split(",") else None)
        return decision
    if mode != "tune":
        return decision_of(forms[0], f"the mode is {mode} and the store does not know the graph")
    if race.capturing():
        return decision_of(forms[0], "a stream is being captured, and nothing is measured meanwhile", False)
    try:
        arguments = drawn(inputs, own=bool(plan.acts))
        writes = changed(plan, arguments)
        inner, legal, few = _chosen(plan, inductor, arguments)
        parts, right = _parts(legal, few), reference(plan, arguments, writes)
        guess = None if inner is not None else predict.guess(predict.known(_graph(key)), parts)
        # Who lost in a layer is not compiled once more for all of them.
        listed = [*(forms if inner is None or not few else forms[1:]), *fused(few)]
        with apart(gpu_of(inputs)):
            if guess is not None and _is_right(chosen := _named(listed, guess.winner), arguments, writes, right):
                others = f"{guess.sizes} other sizes were raced"
                sure = f"told by its parts: {others}, and this was off by {guess.off:.0%} at most"
                decision = decision_of(chosen, sure)
                us = {f.name: guess.seconds[f.name] * 1e6 for f in listed}
                decision.contestants = [Contestant(f.name, f.kinds, us[f.name], "not raced") for f in listed]
                return decision
            times = in_a_row(plan, arguments, writes)
            contestants, runs, left = _ready(listed, arguments, writes, times)
            winner, result = compete(contestants, runs, right, True) if contestants else (0, None)
            runs.clear()  # with their CUDA graphs
    except (RuntimeError, MemoryError) as why:  # no memory for other inputs, or nobody was right with them
        reason = str(why).partition("\n")[0]
        _log.warning("graph:%s: it was not raced: %s; Inductor runs it", key, reason)
        return decision_of(forms[0], f"not raced: {reason}")
    chosen = forms[0] if not contestants or result is None else _ahead(contestants, winner, result)
    decision = decision_of(chosen, "nothing could be raced" if result is None else "raced")
    raced = [*_contestants(contestants, result, times), *left]
    decision.contestants, decision.layer = recorded_times.with_ties(raced, result), inner
    if inner is not None:
        return decision
    wholes = {contestant.name: contestant.us * 1e-6 for contestant in decision.contestants if contestant.us is not None}
    predict.remember(_graph(key), predict.Size(parts, wholes))
    decision.unmeasured = [p for p in legal if p not in few]
    return decision


def _chosen(
    plan: Plan, inductor: Inductor, arguments: tuple[Any, ...]
) -> tuple[Decision | None, list[Partition], list[Partition]]:
    """What was decided about the layer that a graph repeats, if it does; partitions by their parts, and those that race
    as a whole: what won in the layer, or the first few."""
    layer = repeated(plan)
    inner = None if layer is None else _decide(layer.plan, inductor, layer.inputs(plan, arguments))
    if layer is not None and inner is not None and inner.contestants:
        inner.copies = layer.copies
        result = layer.partition(plan, inner.winner, arguments, inductor.records)
        return inner, [result], [result] if result.kinds else []
    partitions = plan.partitions(timed(plan, arguments, inductor.records), _PREDICTED)
    legal = [p for p in partitions if math.isfinite(p.seconds)]
    return None, legal, _unlike([p for p in legal if p.kinds], _RACED_SHORT if len(plan.nodes) <= _SHORT else _RACED)


def _unlike(partitions: list[Partition], most: int) -> list[Partition]:
    """The first few that differ by more than one cover: what a single small one does is told well enough by its
    parts."""
    few: list[Partition] = []
    for partition in partitions:
        if all(len(set(partition.kinds) ^ set(other.kinds)) > 1 for other in few):
            few.append(partition)
    few += [p for p in partitions if p not in few]
    return few[:most]


def _nothing() -> None:
    return None


def _graph(key: str) -> str:
    """A key without its sizes."""
    return ",".join(field for field in key.split(",") if not field.startswith("sizes="))


def _named(forms: list[Form], name: str) -> Form:
    return next(form for form in forms if form.name == name)


def _parts(legal: list[Partition], few: list[Partition]) -> dict[str, float]:
    """What the parts of every choice take, by its name; who covers nothing has the same ones compiled or not."""
    plain = next((p.seconds for p in legal if not p.kinds), 0.0)
    return {"inductor": plain, "eager": plain, **{" + ".join(p.kinds): p.seconds for p in few}}


def _is_right(form: Form, arguments: tuple[Any, ...], writes: Changed, right: Run) -> bool:
    """Whether a choice that did not race gives what it should."""
    try:
        pairs = zip(Whole(form, arguments, writes)(), right())
        return all(share_of_tolerance(a, b, form.plan.tolerance(arguments)) <= 1.0 for a, b in pairs)
    except Exception as why:
        _log.info("%s: is raced after all: %s", form.name, str(why).partition("\n")[0])
        return False


def _kept(plan: Plan, key: str) -> list[Partition]:
    """The partition that the store names, where this graph has it: there may be more than can be listed."""
    config = json.loads(_warplap.kept("graph", key) or "{}")
    result = plan.partition(str(config.get("covers", "")).split())
    return [] if result is None else [result]


def _ahead(forms: list[Form], winner: int, result: dict[str, Any]) -> Form:
    """The winner, where it is ahead of Inductor by more than nothing; else Inductor, which answers too where it runs
    but nobody knows how fast."""
    raced = {trial["variant"] for trial in result["edition"]["trials"]}
    by_inductor = next((i for i, form in enumerate(forms) if form.name == "inductor"), None)
    if by_inductor is None or "inductor" not in raced:  # it lost in the layer that the graph repeats
        return forms[winner]
    theirs = _contestants([forms[by_inductor]], result)[0].us
    ours = result["edition"]["verdict"]["median_us"]
    return forms[winner] if theirs is not None and ours < (1.0 - _AHEAD) * theirs else forms[by_inductor]


def _contestants(forms: list[Form], result: dict[str, Any] | None, times: int = 1) -> list[Contestant]:
    """What a race of so many runs in a row said of one run of everyone."""
    contestants = []
    trials = [] if result is None else result["edition"]["trials"]
    for form in forms:
        name, config, _ = form.candidate
        contestant = Contestant(form.name, form.kinds)
        for trial in trials:
            if trial["variant"] == name and trial["config"] == config:
                rejected = trial.get("rejected") or {}
                measured = trial.get("measured") or rejected.get("measurement")
                contestant.us = None if measured is None else measured["median_us"] / times
                if measured is None:
                    reason = str(rejected.get("reason", "")).partition("\n")[0][:160]
                    contestant.why = ": ".join(filter(None, (rejected.get("why", ""), reason)))
        contestants.append(contestant)
    return contestants


def _ready(
    forms: list[Form], arguments: tuple[Any, ...], writes: Changed, times: int
) -> tuple[list[Form], list[Run], list[Contestant]]:
    """Those that can be built and run, what runs each once as the program does, and why others cannot."""
    ready: list[Form] = []
    runs: list[Run] = []
    left: list[Contestant] = []
    for form in forms:
        try:
            run = Whole(form, arguments, writes, times)
            run()  # compiles, and lets every part find its own kernel
            run()
        except Exception as why:
            reason = f"{type(why).__name__}: {why}".partition("\n")[0][:160]
            left.append(Contestant(form.name, form.kinds, None, reason))
            continue
        ready.append(form)
        runs.append(run)
    return ready, runs, left
