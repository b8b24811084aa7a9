"""Callables join the races, torch's own forms among them: they are proved, raced and recorded like every variant."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Callable, Iterator

import torch

from .. import _warplap, candidates, ops
from ..callables.race import source_of
from ..operator.candidate import Candidate
from ..tuner import modes


def add(
    op: str,
    name: str,
    call: Callable[..., Any],
    fit: Callable[[str], str | None] | None = None,
    *,
    device: str = "cpu",
    space: Callable[[str], dict[str, list[int]]] | None = None,
    prepare: Callable[..., Any] | None = None,
    facts: Callable[[str], dict[str, Any]] | None = None,
    returns: bool = False,
    give: Callable[..., Any] | None = None,
    _as_called: dict[str, Callable[..., Any]] | None = None,  # torch's own functions only: no proof sees them
) -> None:
    """Lets a callable race in an operation ("matmul", "attention", "bsr_matmul") on the CPU or on CUDA devices.

    It gets torch tensors over the race's own buffers, one for each slot of the operation in their order, and writes the
    output: ``call(a, b, c, bias)``, ``call(q, k, v, mask, out)``, ``call(crow, col, values, b, c)``. Where a problem
    does not have a slot (``mask``) it gets None, and nothing where no further ones follow (``bias``). With ``returns``
    it gets what is read (``call(q, k, v, mask)``) and returns the output, which becomes a user's answer without a copy.
    One that writes may come with ``give``, which returns the output in the same way, for users who give none.

    What else it needs to know of a problem ``facts`` says: it is asked once with the problem's text and gives keyword
    arguments, ``lambda problem: {"causal": "causal=true" in problem}``. ``fit`` is asked likewise and says why the
    callable stands aside, or None. ``space`` gives settings to be tuned, by name the whole numbers to try; they come as
    keyword arguments too. ``prepare`` is called with the problem's text and the settings before the callable's turn, on
    another thread: the place to compile. Where it is chosen for a user's sparse tensor on the CPU, ``crow`` is that
    tensor and ``col`` None.
    """
    version = f"{torch.__version__} {torch.get_num_threads() if device == 'cpu' else torch.version.cuda}"
    source = f"{source_of(call)}\n{version}"
    _warplap.add_variant(
        _warplap.read_operation(op), name, source, call, fit,
        device=device, space=space, prepare=prepare, facts=facts, returns=returns, give=give,
        as_called=_as_called,
    )  # fmt: skip
    _warplap.forget()
    modes.changed()


def declared() -> Iterator[Candidate]:
    """torch's own forms, which stand beside operators or here, in the order of their modules' names."""
    for package in (ops, candidates):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield from getattr(importlib.import_module(module.name), "CANDIDATES", ())


def join() -> None:
    """torch's implementations join the catalogs."""
    _warplap.configure(libraries=[("torch", f"{torch.__version__}/{torch.get_num_threads()}")])
    for own in declared():
        for device in own.devices:
            add(
                own.op, own.name, own.call, own.fit,
                device=device, space=own.space, prepare=own.prepare, facts=own.facts, returns=own.returns,
                give=own.give, _as_called=own.as_called,
            )  # fmt: skip


__all__: list[Any] = ["add", "join"]
