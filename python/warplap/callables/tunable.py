"""``@tunable``: any Python callable with settings of its own, tuned by the rules of every race."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Generic, Iterable, Mapping, ParamSpec, Sequence, TypeVar

from .. import _warplap
from . import isolate, race, sandbox as callables_sandbox

P = ParamSpec("P")
R = TypeVar("R")

Rule = "str | Callable[..., bool]"


def configs_of(space: Mapping[str, Iterable[Any]], rules: Sequence[Any]) -> list[dict[str, Any]]:
    """Every setting that breaks no rule. A rule is an expression over the names, a callable that takes some of them, or
    a callable that takes one dictionary (:func:`of_dictionary`)."""
    return listing(space, rules, None)[0]


def listing(
    space: Mapping[str, Iterable[Any]], rules: Sequence[Any], most: int | None
) -> tuple[list[dict[str, Any]], bool]:
    """The settings that break no rule, so many at the most, and whether the rules are all expressions that the engine
    reads."""
    values = {name: list(v) for name, v in space.items()}
    names = list(values)
    axes = list(values.items())
    report = [_as_rule(rule, names) for rule in rules]
    is_read = all(text_only for *_, text_only in report)
    try:
        points = _warplap.legal(
            axes, [(text, reads, None if text_only else call) for text, reads, call, text_only in report], most
        )
    except ValueError as error:
        if not str(error).startswith("rules:"):
            raise
        # What the engine cannot read, Python can.
        points, is_read = _warplap.legal(axes, [(text, reads, call) for text, reads, call, _ in report], most), False
    return [{name: values[name][at] for name, at in zip(names, point)} for point in points], is_read


class of_dictionary:
    """A rule that takes all settings as one dictionary."""

    def __init__(self, rule: Callable[[dict[str, Any]], bool]) -> None:
        self.rule = rule


def _as_rule(rule: Any, names: list[str]) -> tuple[str, list[str], Callable[[list[Any]], bool], bool]:
    """A rule's text, the names it reads, a callable that takes their values, and whether the text says it all."""
    if isinstance(rule, of_dictionary):
        return "a callable", names, lambda values: bool(rule.rule(dict(zip(names, values)))), False
    if isinstance(rule, str):
        code = compile(rule.strip(), "<rule>", "eval")
        reads = [n for n in code.co_names if n in names]
        unknown = [n for n in code.co_names if n not in names and n not in BUILTINS]
        if unknown:
            raise ValueError(
                f"rules: '{rule}' names {', '.join(unknown)}, expected names of the space: {', '.join(names)}"
            )
        known = {"__builtins__": BUILTINS}
        return rule, reads, lambda values: bool(eval(code, known, dict(zip(reads, values)))), True
    wanted = [n for n in inspect.signature(rule).parameters]
    unknown = [n for n in wanted if n not in names]
    if unknown:
        raise ValueError(f"rules: a rule takes {', '.join(unknown)}, expected names of the space: {', '.join(names)}")
    return "a callable", wanted, lambda values: bool(rule(**dict(zip(wanted, values)))), False


BUILTINS = {"min": min, "max": max, "abs": abs, "int": int, "float": float, "round": round, "len": len, "sum": sum}


class Tunable(Generic[P, R]):
    """A callable that runs with the best settings for its arguments. Made by :func:`tunable`."""

    def __init__(
        self,
        fn: Callable[..., R],
        space: Mapping[str, Iterable[Any]],
        rules: Sequence[Any],
        key: Callable[..., Any] | None,
        reference: Callable[..., Any] | None,
        tolerance: float | None,
        budget: float | None,
        name: str | None,
        version: str,
        sandbox: bool | None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn, self.key, self.reference = fn, key, reference
        self.tolerance, self.budget, self.sandbox = tolerance, budget, sandbox
        self.name = name or fn.__qualname__
        self.configs = configs_of(space, rules)
        if not self.configs:
            raise ValueError("space: the rules leave no setting, expected one or more")
        taken = [n for n in space if n not in inspect.signature(fn).parameters]
        kinds = [p.kind for p in inspect.signature(fn).parameters.values()]
        if taken and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise ValueError(f"space: the function takes no argument {', '.join(taken)}")
        self._source = f"{race.source_of(fn)}\n{version}"
        self._chosen: dict[Any, dict[str, Any]] = {}
        self.last: dict[str, Any] | None = None

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self.key is not None:
            return str(self.key(*args, **kwargs))
        plain = [v for v in (*args, *kwargs.items()) if isinstance(v, (int, float, str, bool, tuple, type(None)))]
        return f"{race.describe((args, kwargs))} {plain}"

    def config(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """The settings of choice for these arguments; races them where they are not known."""
        key = self._key(args, kwargs)
        known = self._chosen.get(key)
        if known is not None:
            return known
        return self._race(key, args, kwargs, again=False)

    def _race(self, key: str, args: tuple[Any, ...], kwargs: dict[str, Any], again: bool) -> dict[str, Any]:
        if self.sandbox and race.gpu_of((args, kwargs)) is not None:
            callables_sandbox.where(self.fn)
        candidates = [(self.fn.__name__, config, self._source) for config in self.configs]
        runs = [functools.partial(self.fn, **config) for config in self.configs]
        winner, result = race.compete(
            self.name,
            key,
            candidates,
            runs,
            self.reference or runs[0],
            args,
            kwargs,
            tolerance=self.tolerance,
            budget=self.budget,
            again=again,
            trial=None if self.sandbox is False else lambda rig, i: self._trial(rig, self.configs[i]),
        )
        if result is not None:
            self._chosen[key] = self.configs[winner]
            self.last = result
        return self.configs[winner]

    def _trial(self, rig: Any, config: dict[str, Any]) -> tuple[str, str, float] | None:
        """A first run of a candidate elsewhere, where that can be."""
        if rig.device is not None and self.sandbox and callables_sandbox.is_on():
            return callables_sandbox.try_call(self.fn, rig.args, {**rig.kwargs, **config})
        if not isolate.can_fork(rig):
            return None
        refused = isolate.first_run(rig, functools.partial(self.fn, **config))
        if refused is not None and refused[0] == "timed_out" and self.sandbox is None:
            # Threads of its own may not have survived the fork: that is not the candidate's fault.
            return None
        return refused

    def tune(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Races the settings for these arguments, known or not; the settings of choice."""
        return self._race(self._key(args, kwargs), args, kwargs, again=True)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs, **self.config(*args, **kwargs))


def tunable(
    *,
    space: Mapping[str, Iterable[Any]],
    rules: Sequence[Any] = (),
    key: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    budget: float | None = None,
    name: str | None = None,
    version: str = "",
    sandbox: bool | None = None,
) -> Callable[[Callable[..., R]], Tunable[..., R]]:
    """Lets a Python callable (torch, Triton, CuPy, Numba, plain) be tuned.

    ``space`` maps keyword arguments of the callable to their values, the first of each being the default. ``rules`` are
    expressions over these names (``"block * stages <= 64"``) or callables. ``key`` gives what a choice is kept by, from
    the arguments; by default types, sizes and strides of tensors and the values of plain arguments. ``reference`` is
    called with the same arguments and gives the right answer; by default the first setting does. A change of the
    callable's source, or of ``version``, makes what was kept stale. On the CPU a setting runs first in a fork of the
    process: one that takes it down is rejected. One that does not end there within ten seconds is rejected too with
    ``sandbox=True``; by default it is believed to wait for threads that forks do not have. With CUDA tensors
    ``sandbox=True`` runs it first in a worker process, which imports the module the callable is defined in (a program's
    own file too: guard what it does with ``if __name__ == "__main__"``). ``sandbox=False`` runs everyone here.
    """

    def wrap(fn: Callable[..., R]) -> Tunable[..., R]:
        return Tunable(fn, space, rules, key, reference, tolerance, budget, name, version, sandbox)

    return wrap
