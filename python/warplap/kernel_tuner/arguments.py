"""What users of Kernel Tuner's calling form hand over, brought into one form: sources, arguments, restrictions."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any, Iterable, Mapping, Sequence

from ..callables.tunable import of_dictionary

# Kernel Tuner's names of the ways to launch CUDA, which are all one here.
CUDA = ("CUDA", "CUPY", "NVCUDA")


def source(inputs: Any) -> Any:
    """The text of a kernel, or the callable that makes it from a setting."""
    if callable(inputs):
        return inputs
    if isinstance(inputs, (list, tuple)):
        raise NotImplementedError("kernel_source: is a list, expected one source")
    if not isinstance(inputs, (str, os.PathLike)):
        raise TypeError(f"kernel_source: is a {type(inputs).__name__}, expected a text, a file or a callable")
    text = os.fspath(inputs)
    if isinstance(inputs, os.PathLike) or ("\n" not in text and os.path.exists(text)):
        with open(text) as file:
            return file.read()
    if re.fullmatch(r"[^\s(){};]+\.(c|cu|cpp|cc)", text):
        raise FileNotFoundError(f"kernel_source: there is no file {text!r}")
    return text


def language(lang: str | None, kernel_source: Any) -> str:
    """C or CUDA: what is said, or what the source looks like."""
    said = (lang or "").upper()
    if said not in ("", "C", *CUDA):
        raise NotImplementedError(f"lang: is {lang!r}, expected C or CUDA")
    if not said and callable(kernel_source):
        raise ValueError("lang: is needed where a callable makes the source, expected C or CUDA")
    return "CUDA" if said in CUDA or (not said and "__global__" in kernel_source) else "C"


def host(arguments: Sequence[Any], what: str = "arguments") -> list[Any]:
    """The arguments as NumPy arrays and scalars: those of CuPy and torch are copied over."""
    import numpy

    taken = []
    for value in arguments:
        if hasattr(value, "detach"):  # torch
            value = value.detach().cpu().numpy()
        elif hasattr(value, "__cuda_array_interface__"):  # CuPy
            value = value.get()
        if not isinstance(value, (numpy.ndarray, numpy.generic)) or value.dtype.hasobject:
            raise TypeError(f"{what}: holds a {type(value).__name__}, expected NumPy arrays and NumPy scalars")
        taken.append(value)
    return taken


def restrictions(inputs: Any, names: Iterable[str]) -> list[Any]:
    """Expressions over the names, callables that take a dictionary, callables that take some of the names, and pairs of
    a callable and the names it takes: as rules."""
    names = list(names)
    every = [inputs] if callable(inputs) or isinstance(inputs, str) else list(inputs or ())
    return [_rule(rule, names) for rule in every]


def _rule(rule: Any, names: list[str]) -> Any:
    if isinstance(rule, str):
        return rule
    if isinstance(rule, tuple) and len(rule) >= 2 and callable(rule[0]):
        call, takes = rule[0], list(rule[1])
        return of_dictionary(lambda config: call(**{name: config[name] for name in takes}))
    if not callable(rule):
        raise TypeError(f"restrictions: holds a {type(rule).__name__}, expected expressions and callables")
    parameters = inspect.signature(rule).parameters.values()
    if any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters):
        return of_dictionary(lambda config: rule(**config))
    return rule if all(p.name in names for p in parameters) else of_dictionary(rule)


def define(value: Any) -> str:
    """A value of a setting as the preprocessor takes it."""
    return str(int(value) if isinstance(value, bool) else value)


def defines(config: Mapping[str, Any]) -> list[str]:
    """A setting as options of a compiler."""
    return [f"-D{name}={define(value)}" for name, value in sorted(config.items())]


# Arguments of Kernel Tuner that say how it measures, searches, prints and keeps: the race has its own ways.
_NOT_NEEDED = {
    "verbose", "quiet", "log", "iterations", "platform", "strategy", "strategy_options", "cache", "objective",
    "objective_higher_is_better", "use_noodles", "time_limit", "parallel", "seed",
}  # fmt: skip


def refuse(others: Mapping[str, Any]) -> None:
    """Says which of Kernel Tuner's arguments is not offered, if one was given that says something."""
    for name, value in others.items():
        says_nothing = value is None or value is False or (isinstance(value, (list, tuple, dict)) and not value)
        if name not in _NOT_NEEDED and not says_nothing:
            raise NotImplementedError(f"{name}: is not offered, expected one of Kernel Tuner's that are")


def only_cuda(**inputs: Any) -> None:
    """Refuses what kernels in C have not."""
    for name, value in inputs.items():
        if value:
            raise ValueError(f"{name}: is for kernels in CUDA, expected none for one in C")
