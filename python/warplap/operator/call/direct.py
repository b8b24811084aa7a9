"""Calls over torch's plain tensors of which nobody wants a gradient: what such a call needs to know follows from how
its tensors lie and from its other arguments, and is found out once for each way."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ... import _warplap
from ..optional_torch import Tensor

# A call of the tensors that it was planned for, and of all that lie like them.
Recipe = Callable[..., Any]

# What says that a call is for the general way, which copies or says what is wrong.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)


class Plan(NamedTuple):
    """A call as a problem has it: the problem; for each slot the number of a tensor and what is seen of it, or None;
    and the shapes, or the forms, of what it gives, where those are others than the problem's."""

    ready: _warplap.Prepared
    slots: tuple[tuple[int, Tensor] | None, ...]
    gives: tuple[Any, ...] | None = None


class Direct:
    """The calls of one operator. ``plan(*tensors, *facts)`` says what a call is; None, or an error that the general way
    words, where it is not for this way to do. What is decided by how tensors lie is asked once."""

    def __init__(self, plan: Callable[..., Plan | None]) -> None:
        self._plan = plan
        self._known = _warplap.CallCache("direct")
        self._get = self._known.get

    def call(self, tensors: tuple[Any, ...], facts: tuple[Any, ...]) -> Any:
        """What the kernel gives; None for everything that is not for this way to do."""
        recipe = self._get(tensors, facts)
        if recipe is None:
            recipe = self._learn(tensors, facts)
        return recipe(*tensors) if recipe else None

    def _learn(self, tensors: tuple[Any, ...], facts: tuple[Any, ...]) -> Recipe | None:
        if not self._known.keeps(tensors):
            return None
        try:
            plan = self._plan(*tensors, *facts)
        except REFUSALS:
            plan = None
        recipe = None if plan is None else _recipe(plan, tensors)
        self._known.keep(tensors, facts, recipe or False)
        return recipe


def _recipe(plan: Plan, tensors: tuple[Any, ...]) -> Recipe | None:
    """The call as one expression of the tensors: a loop over slots takes longer on the host than all that it does."""
    known: dict[str, Any] = {"direct": plan.ready.direct}
    slots = []
    for slot in plan.slots:
        if slot is None:
            slots.append("None")
            continue
        i, seen = slot
        if seen.data_ptr() != tensors[i].data_ptr():  # a copy
            return None
        slots.append(f"t{i}" + _see(tensors[i], seen, known))
    own, taken = ", ".join(f"t{i}" for i in range(len(tensors))), ", ".join(slots)
    call = f"direct({taken})"
    if plan.gives is None and own == taken:
        return plan.ready.direct
    if plan.gives is None:
        return eval(f"lambda {own}: {call}", known)  # type: ignore[no-any-return]
    parts = [f"y[{i}]" if len(plan.gives) > 1 else "y" for i in range(len(plan.gives))]
    gives = [part + _give(form, known) for part, form in zip(parts, plan.gives)]
    answer = gives[0] if len(gives) == 1 else f"({', '.join(gives)})"
    return eval(f"lambda {own}: None if (y := {call}) is None else {answer}", known)  # type: ignore[no-any-return]


def _see(t: Tensor, seen: Tensor, known: dict[str, Any]) -> str:
    """How a tensor becomes what is seen of it."""
    if t.shape == seen.shape and t.stride() == seen.stride():
        return ""
    if t.ndim == seen.ndim == 2 and t.shape == seen.shape[::-1] and t.stride() == seen.stride()[::-1]:
        return ".t()"
    if t.is_contiguous() and seen.is_contiguous():
        return _give(tuple(seen.shape), known)
    return _give((tuple(seen.shape), tuple(seen.stride())), known)


def _give(form: tuple[Any, ...], known: dict[str, Any]) -> str:
    """How an output becomes what a call gives, of a shape or of a shape and strides."""
    name = f"form{len(known)}"
    known[name] = form
    return f".as_strided(*{name})" if isinstance(form[0], tuple) else f".view({name})"
