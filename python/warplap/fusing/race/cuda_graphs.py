"""CUDA graphs that a race records, beside those of the program it interrupts.

Inductor keeps the graphs of a device in a tree that knows which tensors of the path so far are alive, and counts the
calls of the program: with a new one the tensors of the one before may be written over. Forms that race are called as
programs of their own. In the program's tree their graphs would stand behind whatever ran last and fail with it, and
every call of theirs would tell the tree that the program's tensors are dead. So they have a tree of their own, and the
count of calls is afterwards what it was.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch
from torch._dynamo.mutation_guard import GenerationTracker

# Who counts marked steps, for each race that is on: one may wait for another.
_races: list[Any] = []


@contextlib.contextmanager
def apart(device: torch.device | None) -> Iterator[None]:
    """Lets what runs meanwhile have CUDA graphs of its own on a device."""
    result = None if device is None else _trees()
    if result is None or device is None:
        yield
        return
    index = torch.cuda.current_device() if device.index is None else device.index
    known, steps = result
    generation, step = GenerationTracker.generation, steps.mark_step_counter
    # Taken out of the dictionary itself: threads that compute gradients share it.
    own = known.pop(index, None)
    _races.append(steps)
    try:
        yield
    finally:
        _races.pop()
        known.pop(index, None)
        if own is not None:
            known[index] = own
        GenerationTracker.generation, steps.mark_step_counter = generation, step


def begin_anew() -> None:
    """Says that a program's next call begins, as each call of a compiled program does; outside of a race nothing."""
    if not _races:
        return
    GenerationTracker.generation += 1
    if _races[-1].mark_step_counter:  # who marks steps himself is counted by that
        _races[-1].mark_step_counter -= 1


def _trees() -> tuple[dict[int, Any], Any] | None:
    """This thread's trees by device, and who counts marked steps; None in a torch that has them elsewhere, and in a
    thread that has none."""
    try:
        from torch._inductor import cudagraph_trees as trees

        known, steps = trees.get_obj(trees.local, "tree_manager_containers"), trees.MarkStepBox
        return (known, steps) if isinstance(steps.mark_step_counter, int) else None
    except (ImportError, AttributeError, AssertionError):
        return None
