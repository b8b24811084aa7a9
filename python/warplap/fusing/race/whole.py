"""A graph run as its program runs it, on inputs of our own, and what a right run gives."""

from __future__ import annotations

import time
from typing import Any, Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter

from ...callables.harness import share_of_tolerance
from ...training.steps import IN_A_ROW
from ..matching.patterns import fold
from ..plan import Plan
from .cuda_graphs import begin_anew
from .forms import Form, Run

# Runs in a row at the most, and seconds that they take together on a GPU: a wait for the GPU at the end of a few short
# ones would say more of the wait than of them.
_MOST, _TOGETHER = 64, 2e-3


def in_a_row(plan: Plan, arguments: tuple[Any, ...], changed: Changed) -> int:
    """How often a graph is run before its program waits: once on a CPU, where a call ends when its work does."""
    device = gpu_of(arguments)
    return 1 if device is None else often(lambda: step(plan.module.forward, arguments, changed), device)


def often(run: Run, device: torch.device) -> int:
    """Runs in a row on a GPU, so that the wait at their end is little beside them."""
    for _ in range(2):
        run()
    each = seconds_of(run, IN_A_ROW, device)
    return min(max(int(_TOGETHER / each), IN_A_ROW), _MOST)


def seconds_of(run: Run, times: int, device: torch.device | None) -> float:
    """What one of so many runs in a row takes, with the wait for the last."""
    wait = None if device is None else torch.cuda.current_stream(device).synchronize
    if wait is not None:
        wait()
    began = time.perf_counter()
    for _ in range(times):
        run()
    if wait is not None:
        wait()
    return (time.perf_counter() - began) / times


def gpu_of(arguments: Sequence[Any]) -> torch.device | None:
    return next((t.device for t in arguments if isinstance(t, Tensor) and t.is_cuda), None)


class Whole:
    """A graph run as its program runs it: with its gradients where they are wanted, several times in a row on a GPU."""

    def __init__(self, form: Form, arguments: tuple[Any, ...], changed: Changed, times: int = 1) -> None:
        if form.partition is not None:
            fold(form.partition.covers, form.plan.module.graph, arguments)
        self._run, self._random, self._times = form.built(arguments), form.plan.draws, times
        self._inputs, self._changed = arguments, changed
        self._device = gpu_of(arguments)
        if self._random and form.kinds:
            _prove_calm(form, arguments, changed)

    def __call__(self) -> tuple[Tensor, ...]:
        for _ in range(self._times):
            result: tuple[Tensor, ...] = ()  # so that a CUDA graph may write over what it gave before
            begin_anew()
            result = step(self._run, self._inputs, self._changed)
        if self._device is not None:
            torch.cuda.current_stream(self._device).synchronize()
        return () if self._random else result  # chance has no right answer: that was proved without it


# What is in the inputs that a graph writes to, before it does: by their places.
Changed = dict[int, Tensor]


def changed(plan: Plan, arguments: tuple[Any, ...]) -> Changed:
    """The inputs that a graph writes to (a cache of keys, a counter), and what each run shall find there."""
    if not plan.acts:
        return {}
    tensors = {i: t for i, t in enumerate(arguments) if isinstance(t, Tensor)}
    before = {i: t._version for i, t in tensors.items()}
    step(plan.module.forward, arguments)
    return {i: t.detach().clone() for i, t in tensors.items() if t._version != before[i]}


def step(run: Run, arguments: tuple[Any, ...], changed: Changed | None = None) -> tuple[Tensor, ...]:
    """What a graph gives, what it writes to its inputs, and its gradients along ones."""
    with torch.no_grad():
        for i, was in (changed or {}).items():
            arguments[i].copy_(was)
    outputs = tuple(t for t in flat(run(*arguments)) if isinstance(t, Tensor))
    outputs = (*outputs, *(arguments[i] for i in changed or {}))
    wanted = [t for t in arguments if isinstance(t, Tensor) and t.requires_grad]
    along = [t for t in outputs if t.requires_grad]
    if not (wanted and along and torch.is_grad_enabled()):
        return outputs
    ones = [torch.ones_like(t) for t in along]
    gradients = torch.autograd.grad(along, wanted, ones, allow_unused=True)
    return *(t.detach() for t in outputs), *(g for g in gradients if g is not None)


def flat(result: Any) -> Sequence[Any]:
    """What a graph or a part of it gives, as a list."""
    return result if isinstance(result, (tuple, list)) else (result,)


def reference(plan: Plan, arguments: tuple[Any, ...], changed: Changed) -> Run:
    """The right answer: the graph as it is, in double precision where its nodes take that."""
    if plan.draws:
        return lambda: ()
    try:
        right = _in_double(plan.module, arguments, changed)
    except (RuntimeError, TypeError):  # a type is written into the graph
        right = _own(step(plan.module.forward, arguments, changed))
    return lambda: right


def _in_double(module: GraphModule, arguments: tuple[Any, ...], changed: Changed) -> tuple[Tensor, ...]:
    def wide(t: Any) -> Any:
        return t.detach().double() if isinstance(t, Tensor) and t.is_floating_point() else t

    wanted = lambda t: isinstance(t, Tensor) and t.requires_grad
    inputs = tuple(wide(t).requires_grad_() if wanted(t) else wide(t) for t in arguments)
    before = {i: wide(t) for i, t in changed.items()}
    result = _own(step(lambda *inputs: Interpreter(module).run(*inputs), inputs, before))
    narrow = step(module.forward, arguments, changed)
    return tuple(t.to(like.dtype) for t, like in zip(result, narrow))


def _own(result: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Results that stay what they are when the graph runs again."""
    return tuple(t.detach().clone() for t in result)


def _prove_calm(form: Form, arguments: tuple[Any, ...], changed: Changed) -> None:
    """Holds a graph with chance to the right answer without it."""
    got = _own(step(form.module(calm=True).forward, arguments, changed))
    right = _in_double(form.plan.rewritten((), calm=True), arguments, changed)
    for i, (a, b) in enumerate(zip(got, right)):
        if not share_of_tolerance(a, b, form.plan.tolerance(arguments)) <= 1.0:
            raise ArithmeticError(f"result {i} differs from the right one, with chance left out")


def drawn(inputs: Sequence[Any], own: bool = False) -> tuple[Any, ...]:
    """Random tensors that lie in memory as those do; whole numbers, truths and what is not finite stay the caller's, or
    are copies for who needs his ``own`` to write to."""
    chance = torch.Generator().manual_seed(18)

    def draw(t: Any) -> Any:
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.layout != torch.strided or t.numel() == 0:
            return t.clone() if own and isinstance(t, Tensor) else t
        if not bool(torch.isfinite(t).all()):
            return t.detach().clone() if own else t.detach()
        extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
        flat = torch.randn(extent, generator=chance).mul_(t.shape[-1] ** -0.5 if t.ndim == 2 else 1.0)
        made = flat.to(t.dtype).to(t.device).as_strided(t.shape, t.stride())
        if isinstance(t, torch.nn.Parameter):
            return torch.nn.Parameter(made, t.requires_grad)
        return made.requires_grad_(t.requires_grad)

    with torch.inference_mode(False), torch.no_grad():  # what a graph writes to is seen by its version
        return tuple(draw(t) for t in inputs)
