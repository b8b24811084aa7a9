"""``warplap.fuse``: a function whose fusion boundaries are found by measurement."""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any, Callable, Generic, ParamSpec, TypeVar

import torch

from .explain import Decision
from .page import written
from .race.choice import backend
from .race.forms import Inductor, Run

P = ParamSpec("P")
R = TypeVar("R")


class _Graphs:
    """What was decided about the graphs of one function or module."""

    def __init__(self, what: str, mode: str | None, freeze: bool) -> None:
        self._what, self._mode, self._freeze = what, mode, freeze
        self._runs: list[Any] = []

    def compile(self, module: Any, inputs: Any) -> Run:
        """What torch's compiler calls with each graph it has traced."""
        run = backend(module, inputs, mode=self._mode, freeze=self._freeze)
        self._runs.append(run)
        return run

    @property
    def decisions(self) -> list[Decision]:
        return [run.decision for run in self._runs if run.decision is not None]

    def __str__(self) -> str:
        """In one line."""
        if not self._runs:
            return f"warplap.fuse({self._what}): not called yet"
        made = self.decisions
        covers = [len(d.winner.covers) for d in made if d.winner is not None and d.winner.kinds]
        eager = sum(d.winner is None and d.form == "eager" for d in made)
        said = [f"{len(self._runs)} graph" + "s" * (len(self._runs) > 1)]
        said += [f"{sum(covers)} calls of warplap's in {len(covers)} of them"] if covers else []
        said += [f"{eager} run by eager torch"] if eager else []
        rest = len(made) - len(covers) - eager
        said += [f"{rest} by Inductor alone"] if rest else []
        return f"warplap.fuse({self._what}): " + ", ".join(said)

    def explain(self) -> str:
        if not self._runs:
            return "not called yet: graphs are found and decided at the first call"
        answer = [str(decision) for decision in self.decisions]
        waiting = len(self._runs) - len(answer)
        if waiting:
            answer.append(f"{waiting} of {len(self._runs)} graphs: traced, and not run yet")
        return "\n\n".join(answer)


class Fused(Generic[P, R]):
    """A compiled function that knows what was decided about its graphs. A module that is fused is one of its own class
    besides."""

    __slots__ = ("_graphs", "_run", "_again")

    _graphs: _Graphs
    _run: Callable[P, R]
    _again: tuple[Any, ...]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(*args, **kwargs)

    @property
    def decisions(self) -> list[Decision]:
        """What was decided about each of its graphs so far."""
        return self._graphs.decisions

    def explain(self) -> str:
        """Its graphs with the boundaries chosen, what each alternative took, why it lost, and what is left to torch."""
        return self._graphs.explain()

    def report(self, path: str | os.PathLike[str] = "fusing.html") -> pathlib.Path:
        """Writes a page that draws its graphs with the boundaries chosen, and shows what each alternative took: one
        file of HTML that loads nothing. Its folder must be there."""
        return written(path, self.decisions)

    def __repr__(self) -> str:
        return f"<{self._graphs}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Compiled code stays behind: a copy is fused anew, and the store knows what was decided."""
        return _fused, self._again


class _Function(Fused[P, R]):
    """A function; what it says of itself is the function's."""

    def __init__(self, fn: Callable[P, R]) -> None:
        functools.update_wrapper(self, fn, updated=())


class _Module(Fused[P, R]):
    """A module: the same parameters, submodules, hooks and settings, held in common with the one that was given, so
    that whatever is done to either is done to both. Only calling it differs."""

    __slots__ = ()

    def __repr__(self) -> str:
        own: str = super(Fused, self).__repr__()
        return f"{own}\n<{self._graphs}>"


@functools.lru_cache(maxsize=None)
def _class_of(kind: type) -> type:
    """Modules of a class, fused: its name stays, by which libraries save and find what belongs to a model."""
    names = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (_Module, kind), names)


def _fused(
    fn: Callable[P, R], dynamic: bool | None, fullgraph: bool, mode: str | None, freeze: bool
) -> Fused[P, R]:
    made: Fused[P, R]
    if isinstance(fn, torch.nn.Module):
        kind: Any = type(fn)
        made = object.__new__(_class_of(kind))
        object.__setattr__(made, "__dict__", fn.__dict__)
    else:
        made = _Function(fn)
    graphs = _Graphs(getattr(fn, "__name__", type(fn).__name__), mode, freeze)
    run = torch.compile(fn, backend=graphs.compile, dynamic=dynamic, fullgraph=fullgraph)
    for name, value in (("_graphs", graphs), ("_run", run), ("_again", (fn, dynamic, fullgraph, mode, freeze))):
        object.__setattr__(made, name, value)
    return made


def fuse(
    fn: Callable[P, R], *, dynamic: bool | None = None, fullgraph: bool = False, mode: str | None = None,
    freeze: bool = False,
) -> Fused[P, R]:  # fmt: skip
    """Compiles a function or a module of torch, and decides by measurement which operators run fused.

    A module comes back as a module of its own class: ``generate``, ``config``, ``state_dict``, ``to``, ``train`` and
    hooks are the model's, and so are its parameters. Its graph is traced as ``torch.compile`` traces it (``dynamic``
    and ``fullgraph`` are torch's, ``mode`` is Inductor's). Norms with what is added in front, linear layers with their
    activation, softmax with scale and mask, attention and cross entropy may be taken by warplap's kernels; what is left
    is Inductor's. Which of them are taken is raced at the first call, as whole chains, beside Inductor and eager, each
    proved against double precision, and kept in the store. ``freeze`` says that weights stay as they are, for
    inference: then the gain of an RMSNorm may be folded into copies of the weights behind it (:func:`norm_linear`),
    where that is faster. ``explain()`` of what comes back tells about it, and ``report()`` draws it.
    ``torch.compile(backend="warplap")`` decides in the same way.
    """
    if not callable(fn):
        raise TypeError(f"fn: is a {type(fn).__name__}, expected a function or a module")
    Inductor(mode, None)  # says what is wrong before anything is traced
    if isinstance(fn, Fused):
        fn = fn._again[0]
    return _fused(fn, dynamic, fullgraph, mode, freeze)
