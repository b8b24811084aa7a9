"""``tune_kernel``: Kernel Tuner's calling form for kernels in C and CUDA. Every setting becomes a set of macros; the
source is compiled, tried out in a process of its own (C), proved, raced and kept like every candidate."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from typing import Any, Callable, Mapping, Sequence

from . import _callables, _cuda_kernel, _trial
from ._tunable import configs_of, of_dictionary

_SCALARS = {
    "float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64, "int8": ctypes.c_int8, "uint8": ctypes.c_uint8,
}  # fmt: skip


class _Workshop:
    """Compiles settings of one source; the libraries live as long as the workshop."""

    def __init__(self, name: str, source: str, compiler: str, options: Sequence[str]) -> None:
        self._name, self._source, self._compiler, self._options = name, source, compiler, list(options)
        self._folder = tempfile.TemporaryDirectory(prefix="warplap-")
        self._built: dict[str, Callable[..., Any]] = {}

    def build(self, macros: dict[str, Any]) -> Callable[..., Any]:
        """The function compiled with these macros."""
        defines = [f"-D{k}={int(v) if isinstance(v, bool) else v}" for k, v in sorted(macros.items())]
        mark = hashlib.blake2s(" ".join(defines).encode()).hexdigest()[:16]
        if mark not in self._built:
            code, library = (os.path.join(self._folder.name, f"{mark}.{end}") for end in ("c", "so"))
            with open(code, "w") as file:
                file.write(self._source)
            order = [self._compiler, "-shared", "-fPIC", "-O3", *self._options, *defines, code, "-o", library, "-lm"]
            done = subprocess.run(order, capture_output=True, text=True)
            if done.returncode != 0:
                said = done.stderr.strip().splitlines()
                first = next((line for line in said if "error" in line), said[0] if said else "no reason was given")
                raise SyntaxError(first)
            try:
                function = getattr(ctypes.CDLL(library), self._name)
            except AttributeError:
                raise SyntaxError(f"the source has no function {self._name}") from None
            function.restype = None
            self._built[mark] = function
        return self._built[mark]


def _argument(value: Any) -> Any:
    if hasattr(value, "ctypes"):
        return value.ctypes.data_as(ctypes.c_void_p)
    kind = _SCALARS.get(str(getattr(value, "dtype", "")))
    if kind is None:
        raise TypeError(f"arguments: holds a {type(value).__name__}, expected NumPy arrays and NumPy scalars")
    return kind(value.item())


def _rules(restrictions: Any) -> list[Any]:
    """Expressions over the names, or callables that take one dictionary, as Kernel Tuner has them."""
    every = [restrictions] if callable(restrictions) or isinstance(restrictions, str) else list(restrictions or ())
    return [rule if isinstance(rule, str) else of_dictionary(rule) for rule in every]


def tune_kernel(
    kernel_name: str,
    kernel_source: str,
    problem_size: int | Sequence[int],
    arguments: Sequence[Any],
    tune_params: Mapping[str, Sequence[Any]],
    *,
    restrictions: Any = None,
    answer: Sequence[Any] | None = None,
    atol: float | None = None,
    lang: str | None = None,
    compiler: str | None = None,
    compiler_options: Sequence[str] | None = None,
    grid_div_x: Sequence[str] | None = None,
    grid_div_y: Sequence[str] | None = None,
    grid_div_z: Sequence[str] | None = None,
    block_size_names: Sequence[str] | None = None,
    device: int = 0,
    metrics: Mapping[str, Any] | None = None,
    budget: float | None = None,
    **others: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tunes a kernel in C or CUDA with Kernel Tuner's calling form.

    ``kernel_source`` is C or CUDA, or the name of a file with it; ``tune_params`` become macros; ``arguments`` are
    NumPy arrays and scalars, which stay as they are; ``answer`` holds the right output for each argument that is one,
    and None for the others (without it, the first setting is the reference); ``atol`` is relative to the largest value
    here. Gives one dictionary a setting (its parameters, ``time`` in milliseconds or the reason it was rejected), best
    first, and what was found out about the run. ``grid_div_x`` and its like, ``block_size_names`` and ``device`` are
    for CUDA, where ``answer`` is needed, for one output. ``metrics`` (names and callables over a row, or expressions)
    are added to the rows. What Kernel Tuner takes beside and the race does not need (``verbose``, ``quiet``,
    ``iterations``, ``strategy``, ``strategy_options``, ``cache``, …) is taken and not used.
    """
    unknown = [name for name in others if name not in _NOT_NEEDED]
    if unknown:
        raise NotImplementedError(f"{unknown[0]}: is not offered, expected one of Kernel Tuner's that are")
    language = (lang or "").upper()
    if language not in ("", "C", *_CUDA):
        raise NotImplementedError(f"lang: is {lang!r}, expected C or CUDA")
    if "\n" not in kernel_source and os.path.exists(kernel_source):
        with open(kernel_source) as file:
            kernel_source = file.read()
    if language in _CUDA or (not language and "__global__" in kernel_source):
        rules = _rules(restrictions)
        configs = configs_of(tune_params, rules)
        if not configs:
            raise ValueError("restrictions: leave no setting of tune_params")
        kernel = _cuda_kernel.Kernel(kernel_name, kernel_source, list(compiler_options or ()), dict(tune_params), rules)
        kernel.launched(problem_size, [grid_div_x, grid_div_y, grid_div_z], block_size_names)
        tuned = kernel.tune(arguments, answer, atol, device, budget)
        best = tuned["edition"]["verdict"]["winner"]["config"]
        return _measured(_results(tuned, configs), metrics), {
            "best": best,
            "key": tuned["key"],
            "from_store": tuned["from_store"],
        }
    compiler = compiler or os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("compiler: there is no C compiler here; install one or name it")
    configs = configs_of(tune_params, _rules(restrictions))
    if not configs:
        raise ValueError("restrictions: leave no setting of tune_params")
    for value in arguments:
        _argument(value)
    workshop = _Workshop(kernel_name, kernel_source, compiler, compiler_options or ())

    def run(config: dict[str, Any]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            workshop.build(config)(*map(_argument, args))

        return call

    def right(*args: Any) -> None:
        for to, value in zip(args, answer or ()):
            if value is not None:
                to[...] = value

    def trial(rig: Any, i: int) -> tuple[str, str, float] | None:
        workshop.build(configs[i])  # what does not compile is found out here
        return _trial.first_run(rig, runs[i]) if _trial.can_fork(rig) else None

    runs = [run(config) for config in configs]
    source = f"{kernel_source}\n{compiler} {' '.join(compiler_options or ())}"
    candidates = [(kernel_name, config, source) for config in configs]
    key = f"size={problem_size} {_callables.describe(list(arguments))}"
    winner, found = _callables.compete(
        f"kernel_{kernel_name}", key, candidates, runs, right if answer is not None else runs[0], tuple(arguments), {},
        tolerance=atol, budget=budget, trial=trial,
    )  # fmt: skip
    if found is None:
        return [dict(configs[0], time=None)], {"mode": "nothing was measured", "best": configs[0]}
    rows = _measured(_results(found, configs), metrics)
    return rows, {"best": configs[winner], "key": found["key"], "from_store": found["from_store"]}


# Kernel Tuner's names of the ways to launch CUDA, which are all one here.
_CUDA = ("CUDA", "CUPY", "NVCUDA")

# Arguments of Kernel Tuner that say how it measures, searches, prints and keeps: the race has its own ways.
_NOT_NEEDED = {
    "verify", "verbose", "quiet", "log", "iterations", "platform", "strategy", "strategy_options", "cache", "objective",
    "objective_higher_is_better", "use_noodles", "time_limit",
}  # fmt: skip


def _measured(rows: list[dict[str, Any]], metrics: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The rows with a user's metrics where there is a time to work them out from."""
    for row in rows:
        if isinstance(row["time"], float):
            for name, metric in (metrics or {}).items():
                row[name] = metric(row) if callable(metric) else eval(metric, {"__builtins__": {}}, dict(row))
    return rows


def _results(found: dict[str, Any], configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a setting, the fastest first, those that were rejected last."""
    rows: list[tuple[float, dict[str, Any]]] = []
    for config in configs:
        same = (t for t in found["edition"]["trials"] if {k: str(v) for k, v in t["config"].items()} == _texts(config))
        trial = next(same, None)
        rejected = (trial or {}).get("rejected")
        measured = (trial or {}).get("measured") or (rejected or {}).get("measurement")
        if measured is not None:
            ms = measured["median_us"] / 1e3
            rows.append((ms, dict(config, time=ms, times=[us / 1e3 for us in measured["samples_us"]])))
        else:
            reason = "not tried" if rejected is None else f"{rejected['why']}: {rejected.get('reason', '')}"
            rows.append((float("inf"), dict(config, time=reason)))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _texts(config: dict[str, Any]) -> dict[str, str]:
    return {k: str(v) for k, v in config.items()}
