"""Whether a call is worth handing to an operator of ours. Kernels race in the engine; around them stand calls, and of
small tensors the host's part of a call is most of it. So torch's function and ours meet once on a caller's own tensors,
in turns, as programs call them; who loses is not asked again for tensors that lie so."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

import torch
from torch import Tensor

from ... import _warplap
from ...callables import race
from ...tuner import modes
from .eager import PLAIN

Call = Callable[..., Any]

# Calls that take torch longer than this are for the engine's races alone: the host's part is little beside them.
_SHORT = 5e-4

# Rounds of a race, and calls in a row on a GPU, where the host runs ahead.
_ROUNDS, _IN_A_ROW = 9, 8



class CallRace:
    """Who answers calls of one function. ``ours`` gives None, or refuses, where it leaves a call to torch."""

    def __init__(self, stock: Call, ours: Call) -> None:
        self._stock, self._ours = stock, ours
        self._chosen = _warplap.CallCache("direct")
        modes.when_changed(self._chosen.clear)

    def choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Torch's function where it was seen to be faster for tensors that lie so and these other arguments; else ours,
        which may still leave the call to torch."""
        every = (*args, *kwargs.values()) if kwargs else args
        tensors = tuple([a for a in every if type(a) in PLAIN])
        facts = tuple(kwargs), tuple([... if type(a) in PLAIN else a for a in every])
        try:
            chosen = self._chosen.get(tensors, facts)
        except TypeError:  # a list for sizes, say
            return self._ours
        if chosen is None:
            # Where gradients are wanted or somebody watches, nothing is kept.
            if _warplap.mode() != "tune" or race.capturing() or not self._chosen.keeps(tensors):
                return self._ours
            chosen = self._faster(args, kwargs)
            self._chosen.keep(tensors, facts, chosen)
        return chosen  # type: ignore[no-any-return]

    def _faster(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        sides = self._stock, self._ours
        first = next(a for a in (*args, *kwargs.values()) if isinstance(a, Tensor))
        times = _IN_A_ROW if first.is_cuda else 1
        if self._ours(*args, **kwargs) is None:  # whatever it has to find out it finds out here
            return self._stock
        if min(_seconds(self._stock, args, kwargs, 1, first) for _ in range(2)) > _SHORT:
            return self._ours
        took: tuple[list[float], list[float]] = ([], [])
        for turn in range(_ROUNDS):
            for side in (0, 1) if turn % 2 else (1, 0):
                took[side].append(_seconds(sides[side], args, kwargs, times, first))
        return self._stock if statistics.median(took[0]) <= statistics.median(took[1]) else self._ours


def _seconds(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], times: int, first: Tensor) -> float:
    """What so many calls in a row take, with the wait for the last."""
    began = time.perf_counter()
    for _ in range(times):
        call(*args, **kwargs)
    if first.is_cuda:
        torch.cuda.current_stream(first.device).synchronize()
    return time.perf_counter() - began
