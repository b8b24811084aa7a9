"""``warplap.fuse``: a function whose fusion boundaries are found by measurement."""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any, Callable, Generic, ParamSpec, TypeVar

import torch

from .choice import backend
from .forms import Inductor, Run
from .page import written
from .story import Decision

P = ParamSpec("P")
R = TypeVar("R")


class Fused(Generic[P, R]):
    """A compiled function that knows what was decided about its graphs."""

    def __init__(
        self, fn: Callable[P, R], dynamic: bool | None, fullgraph: bool, mode: str | None, freeze: bool
    ) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._graphs: list[Any] = []

        def compile(module: Any, inputs: Any) -> Run:
            run = backend(module, inputs, mode=mode, freeze=freeze)
            self._graphs.append(run)
            return run

        self._run: Callable[P, R] = torch.compile(fn, backend=compile, dynamic=dynamic, fullgraph=fullgraph)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(*args, **kwargs)

    @property
    def decisions(self) -> list[Decision]:
        """What was decided about each of its graphs so far."""
        return [run.decision for run in self._graphs if getattr(run, "decision", None) is not None]

    def explain(self) -> str:
        """Its graphs with the boundaries chosen, what each alternative took, and why it lost."""
        if not self._graphs:
            return "not called yet: graphs are found and decided at the first call"
        told = [str(decision) for decision in self.decisions]
        left = len(self._graphs) - len(told)
        if left:
            told.append(f"{left} of {len(self._graphs)} graphs hold nothing that is raced; Inductor runs them")
        return "\n\n".join(told)

    def report(self, path: str | os.PathLike[str] = "fusing.html") -> pathlib.Path:
        """Writes a page that draws its graphs with the boundaries chosen, and shows what each alternative took: one file
        of HTML that loads nothing. Its folder must be there."""
        return written(path, self.decisions)


def fuse(
    fn: Callable[P, R], *, dynamic: bool | None = None, fullgraph: bool = False, mode: str | None = None,
    freeze: bool = False,
) -> Fused[P, R]:  # fmt: skip
    """Compiles a function or a module of torch, and decides by measurement which operators run fused.

    Its graph is traced as ``torch.compile`` traces it (``dynamic`` and ``fullgraph`` are torch's, ``mode`` is
    Inductor's). Norms with what is added in front, linear layers with their activation, softmax with scale and mask,
    attention and cross entropy may be taken by warplap's kernels; what is left is Inductor's. Which of them are taken
    is raced at the first call, as whole chains, beside Inductor and eager, each proved against double precision, and
    kept in the store. ``freeze`` says that weights stay as they are, for inference: then the gain of an RMSNorm may be
    folded into copies of the weights behind it (:func:`norm_linear`), where that is faster. ``explain()`` of what comes
    back tells about it, and ``report()`` draws it. ``torch.compile(backend="warplap")`` decides in the same way.
    """
    if not callable(fn):
        raise TypeError(f"fn: is a {type(fn).__name__}, expected a function or a module")
    Inductor(mode, None)  # says what is wrong before anything is traced
    return Fused(fn, dynamic, fullgraph, mode, freeze)
