"""matmul, linear and attention where gradients are wanted: the last heat is one of whole steps. Calls that want none
may meet torch's here, too.

Every product of a node is raced by itself, but what a program waits for is the call and its gradients, with everything
that a graph does around them. So our node meets torch's own function once a key, forward and backward, in the race of
all callables, and who wins answers from then on: a call that torch won is torch's own, and so is its graph. On a GPU
the host's clock times several steps in a row and the wait for the last: a small step takes as long as the host.
"""

from __future__ import annotations

import json
import logging
import math
import time
from typing import Any, Callable, Sequence

from .. import _warplap
from ..callables import race
from ..operator.call.eager import PLAIN, casts, is_traced, is_watched, keeps_gradients, transform
from ..operator.checks import FLOATS, ordinary
from ..operator.optional_torch import Tensor, torch
from ..tuner import modes

_log = logging.getLogger("warplap")

Call = Callable[..., Tensor]

# What our node must be ahead of torch's own to answer in its place: where little is to be had, users get what they
# would have without us.
_AHEAD = 0.01

# The share of a key's budget that a heat may take; each product of the node had all of it.
_SHARE = 0.25

# Steps without which nothing can be said: proofs, and a few rounds.
_RUNS = 12

# Steps in a row on a GPU: the host runs ahead of it, as in a program.
IN_A_ROW = 8


def is_step(*arguments: Tensor | None) -> bool:
    """Whether a step that was chosen for tensors of these sizes is one of these: what goes wrong in it is not that they
    do not belong together, and the caller hears of it."""
    return not is_watched() and _belong_together(arguments)


class Steps:
    """Who answers for one operator, by what a caller keeps a choice by. ``problem`` gives the text of the first product
    from the inputs, unless a caller says it; ``letters`` names them. Where nothing is known and nothing may be measured
    our node answers, unless that is ``torchs``; under functorch's transforms ``theirs`` does, torch's own of the tensors
    and the other facts of a call."""

    def __init__(
        self, name: str, letters: str, problem: Callable[..., str] | None = None, *,
        theirs: Callable[..., Tensor] | None = None, torchs: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.letters, self._problem, self._torchs = name, letters, problem, torchs
        self._theirs = theirs
        self._chosen = _warplap.CallCache("direct" if torchs else "training")
        self.get, self.keep = self._chosen.get, self._chosen.keep
        modes.when_changed(self._chosen.clear)

    def __len__(self) -> int:
        return len(self._chosen)

    def direct(self, tensors: tuple[Any, ...], facts: tuple[Any, ...], choose: Callable[..., Call | None]) -> Any:
        """A call over plain tensors of which a gradient is wanted, by whoever won; ``choose(*tensors, *facts)`` says
        who that is where nobody knows. None where it is not for this way to compute."""
        chosen = self.get(tensors, facts)
        if chosen is None:
            if not self._chosen.keeps(tensors):
                return self._transformed(tensors, facts)
            chosen = choose(*tensors, *facts)
        if chosen is None or is_traced():
            return None
        try:
            return chosen(*tensors)
        except NotImplementedError:
            return None
        except RuntimeError:
            if is_step(*tensors):
                raise
            return None  # what is wrong is said in our words on the general way

    def _transformed(self, tensors: tuple[Any, ...], facts: tuple[Any, ...]) -> Any:
        """A call whose gradient functorch takes; None for all others."""
        if self._theirs is None or transform() is None or not keeps_gradients():
            return None
        wants = any(t is not None and t.requires_grad for t in tensors)
        return self._theirs(*tensors, *facts) if wants and _belong_together(tensors) else None

    def choose(
        self, arguments: tuple[Any, ...], facts: tuple[Any, ...], act: str, own: Call, theirs: Call,
        problem: str | None = None,
    ) -> Call | None:
        """Who answers a call with these tensors and other facts, now and later; None where this is not to be decided
        now, or not by us."""
        if _warplap.mode() == "off" or is_watched() or not _belong_together(arguments) or race.capturing():
            return None
        try:
            text = self._text(arguments, act, problem)
        except (ValueError, TypeError, NotImplementedError):
            return None  # a call that others refuse, in their words
        except (RuntimeError, MemoryError) as why:  # no memory to explain it, say
            _log.debug("%s: torch answers: %s", self.name, why)
            return theirs
        chosen = theirs if self._torchs else own
        try:
            chosen = theirs if self._is_torchs(text, arguments, own, theirs) else own
        except (RuntimeError, MemoryError) as why:  # no memory for a second set of tensors, among others
            _log.warning("%s:%s: its step was not raced: %s", self.name, text, str(why).partition("\n")[0])
        # Steps that are torch's where nothing is known are asked for where nobody casts.
        call = chosen if chosen is theirs or self._torchs else _unless_cast(own, theirs)
        self.keep(arguments, facts, call)
        return call

    def _text(self, arguments: Sequence[Tensor | None], act: str, problem: str | None) -> str:
        """What a choice is kept by: the problem of the forward product with its sizes rounded as the engine rounds
        them, and what else makes the step."""
        first = arguments[0]
        assert first is not None
        own_problem = problem is None
        if problem is None:
            assert self._problem is not None
            problem = self._problem(*(None if t is None else t.detach() for t in arguments))
        known = json.loads(_warplap.explain(problem, gpu=first.device.index if first.is_cuda else None))
        fields = known["key"].partition(";")[0].partition(":")[2]
        wants = "".join(letter for letter, t in zip(self.letters, arguments) if t is not None and t.requires_grad)
        dims = "x".join(str(t.ndim) for t in arguments[:2] if t is not None)
        turned = "".join("01"[not t.is_contiguous()] for t in arguments[:2] if t is not None)
        laid = f",turned={turned}" if own_problem and "1" in turned else ""
        on = f",on={race.op_name(torch.cuda.get_device_name(first.device))}" if first.is_cuda else ""
        return f"{fields},act={act},dims={dims},wants={wants}{laid}{on}"

    def _is_torchs(self, text: str, arguments: Sequence[Tensor | None], own: Call, theirs: Call) -> bool:
        """Whether torch's own function answers: as the store says, or a heat."""
        wants = [t is not None and t.requires_grad for t in arguments]
        first = arguments[0]
        assert first is not None
        times = IN_A_ROW if first.is_cuda else 1
        sides = [Step(theirs, wants, times), Step(own, wants, times)]
        version = f"warplap {_warplap.__version__} torch {torch.__version__}"
        candidates: list[tuple[str, dict[str, Any], str]] = [("torch", {}, version), ("warplap", {}, version)]

        def compete(args: tuple[Any, ...], measure: bool, again: bool = False) -> tuple[int, dict[str, Any] | None]:
            return race.compete(
                self.name, text, candidates, sides, sides[0], args, {},
                measure=measure, again=again, budget=_SHARE * modes.budget(), by_wall=True,
            )  # fmt: skip

        winner, result = compete(tuple(arguments), measure=False)
        if _warplap.mode() == "tune" and (result is None or (winner == 1 and not _holds(result))):
            with torch.autograd.graph.saved_tensors_hooks(_itself, _itself) if _is_hooked() else torch.enable_grad():
                args = drawn(arguments, theirs)
                took = min(_seconds(sides[0], args) for _ in range(2))
                if _RUNS * took > modes.budget():  # of all that are in a row
                    _log.info("%s:%s: a step takes %.2g s, too long for a heat; torch answers", self.name, text, took)
                    return True
                sides[1](*args)  # every product finds its own kernel before the whole is timed
                winner, result = compete(args, measure=True, again=result is not None)
                if winner == 1 and result is not None and _holds(result) and not result["from_store"]:
                    # Where others want the cores, one race may see torch's threads wait by chance: once more.
                    winner, result = compete(args, measure=True, again=True)
        if result is None:  # in the background no call waits, and who answers meanwhile is torch
            return self._torchs or _warplap.mode() == "background"
        return not (winner == 1 and _holds(result))


def _seconds(step: Step, args: tuple[Any, ...]) -> float:
    began = time.perf_counter()
    step(*args)
    return time.perf_counter() - began


def _holds(result: dict[str, Any]) -> bool:
    """Whether a winner is ahead by more than nothing, in a race that others did not disturb."""
    verdict = result["edition"]["verdict"]
    ahead = verdict["margin"] is None or verdict["margin"] > _AHEAD
    return verdict["grade"] == "clean" and not verdict["ties"] and ahead


def _unless_cast(own: Call, theirs: Call) -> Call:
    """Our node, but what transforms and autocast make of a call is torch's own."""
    return lambda *tensors: theirs(*tensors) if transform() is not None or casts() else own(*tensors)


def _belong_together(arguments: Sequence[Tensor | None]) -> bool:
    """Whether these are plain tensors in one place, of one type that kernels have and sizes that are raced."""
    tensors = [t for t in arguments if t is not None]
    first = tensors[0]
    beside = lambda t: t.dtype == first.dtype and t.device == first.device
    alike = lambda t: type(t) in PLAIN and t.layout == torch.strided and beside(t)
    return first.dtype in FLOATS and (first.is_cpu or first.is_cuda) and all(alike(t) and ordinary(t) for t in tensors)


def _is_hooked() -> bool:
    """Whether somebody takes over what graphs keep: a checkpoint, say. It must not be handed what a race keeps."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _itself(kept: Tensor) -> Tensor:
    return kept


class Step:
    """A call on the inputs that come first, and its gradients along the tensor that comes last where some are wanted,
    so many times in a row."""

    def __init__(self, call: Call, wants: Sequence[bool], times: int) -> None:
        self._call, self._wants, self._times = call, wants, times
        self._inputs: Any = None
        self._leaves: list[Tensor | None] = []

    def __call__(self, *arguments: Any) -> tuple[Tensor, ...]:
        if self._inputs is not arguments[0]:  # the same ones all through a race
            pairs = list(zip(arguments, self._wants))
            self._leaves = [None if t is None else t.detach().requires_grad_(want) for t, want in pairs]
            self._wanted = [t for t in self._leaves if t is not None and t.requires_grad]
            self._inputs = arguments[0]
        for _ in range(self._times):
            out = self._call(*self._leaves)
            gradients = torch.autograd.grad(out, self._wanted, arguments[-1]) if self._wanted else ()
        if out.is_cuda:
            torch.cuda.current_stream(out.device).synchronize()
        return out, *gradients


def drawn(arguments: Sequence[Tensor | None], call: Call) -> tuple[Tensor | None, ...]:
    """Inputs that lie in memory as those do, and a gradient of the output. The caller's random numbers stay his.

    They are small multiples of a power of two, so that sums are the same in any order, and an activation's kink falls
    on the same elements for everyone.
    """
    first = arguments[0]
    assert first is not None
    chance = torch.Generator().manual_seed(14)

    def draw(like: Tensor, depth: int) -> Tensor:
        extent = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride()))
        flat = torch.randint(-8, 9, (extent,), generator=chance).to(like.dtype)
        scale = 2.0 ** -(3 + round(math.log2(depth) / 2))
        return flat.mul_(scale).to(like.device).as_strided(like.shape, like.stride())

    with torch.no_grad():
        depths = [1, first.shape[-1], 1, 1]  # the second of them is the weight
        inputs = tuple(None if t is None else draw(t, depth) for t, depth in zip(arguments, depths))
        out = call(*inputs)
        return *inputs, draw(torch.empty_like(out), 1)  # as the next layer's gradient lies
