"""``tune_kernel``: Kernel Tuner's calling form for kernels in C and CUDA. Every setting becomes a set of macros; the
source is compiled, tried out in a process of its own, proved, raced and kept like every candidate."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ..callables import isolate, race
from ..callables.tunable import configs_of, listing
from ..tuner.table import shown_us
from . import arguments as kernel_tuner_arguments, infer_outputs, run_once
from .c_compiler import Workshop, argument, compiler_here
from .cuda_kernel import LISTED, Kernel
from .launch import Launch


def tune_kernel(
    kernel_name: str,
    kernel_source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    tune_params: Mapping[str, Sequence[Any]],
    grid_div_x: Any = None,
    grid_div_y: Any = None,
    grid_div_z: Any = None,
    *,
    restrictions: Any = None,
    answer: Sequence[Any] | None = None,
    atol: float | None = None,
    lang: str | None = None,
    compiler: str | None = None,
    compiler_options: Sequence[str] | None = None,
    block_size_names: Sequence[str] | None = None,
    smem_args: Mapping[str, Any] | None = None,
    cmem_args: Mapping[str, Any] | None = None,
    device: int = 0,
    metrics: Mapping[str, Any] | None = None,
    budget: float | None = None,
    **others: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tunes a kernel in C or CUDA with Kernel Tuner's calling form.

    ``kernel_source`` is C or CUDA, the name of a file with it, or a callable that makes it from a setting;
    ``tune_params`` become macros; ``restrictions`` are expressions over them, callables that take a setting as one
    dictionary, or callables that take some of the parameters by name. ``arguments`` are arrays and scalars of NumPy
    (arrays of CuPy and torch are copied over), which stay as they are. ``answer`` holds the right output for each
    argument that is one, and None for the others; without it, the first setting that runs is the reference. ``atol`` is
    relative to the largest value here. Gives one dictionary a setting (its parameters, ``time`` in milliseconds or the
    reason it was rejected), best first, and what was found out about the run.

    For CUDA alone are ``grid_div_x`` and its like, ``block_size_names``, ``cmem_args`` (arrays for constant memory, by
    name), ``smem_args`` (``{"size": …}``, bytes of shared memory) and ``device``; sizes may be numbers, expressions or
    callables over a setting. Which arguments a CUDA kernel writes is found out by running it. ``metrics`` (names and
    callables over a row, or expressions) are added to the rows. What Kernel Tuner takes beside and the race does not
    need (``verbose``, ``quiet``, ``iterations``, ``strategy``, ``strategy_options``, ``cache``, …) is taken and not
    used; what would change the outcome (``verify``, ``observers``, ``texmem_args``, …) is refused by name.
    """
    kernel_tuner_arguments.refuse(others)
    source = kernel_tuner_arguments.source(kernel_source)
    inputs = kernel_tuner_arguments.host(arguments)
    if answer is not None and len(answer) != len(inputs):
        raise ValueError(f"answer: has {len(answer)} entries, expected one for each of the {len(inputs)} arguments")
    if kernel_tuner_arguments.language(lang, source) == "CUDA":
        launch = Launch(problem_size, [grid_div_x, grid_div_y, grid_div_z], block_size_names, smem_args, tune_params)
        kernel = Kernel(kernel_name, source, compiler_options or (), tune_params, launch, cmem_args, device)
        rows, env = _on_gpu(kernel, kernel_name, inputs, tune_params, restrictions, answer, atol, budget)
        return _measured(rows, metrics), env
    kernel_tuner_arguments.only_cuda(cmem_args=cmem_args, smem_args=smem_args)
    compiler = compiler or compiler_here()
    configs = configs_of(tune_params, kernel_tuner_arguments.restrictions(restrictions, tune_params))
    if not configs:
        raise ValueError("restrictions: leave no setting of tune_params")
    for value in inputs:
        argument(value)
    workshop = Workshop(kernel_name, source, compiler, compiler_options or ())

    def run(config: dict[str, Any]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            workshop.build(config)(*map(argument, args))

        return call

    def right(*args: Any) -> None:
        for to, value in zip(args, answer or ()):
            if value is not None:
                to[...] = value

    def trial(rig: Any, i: int) -> tuple[str, str, float] | None:
        workshop.build(configs[i])  # what does not compile is found out here
        return isolate.first_run(rig, runs[i]) if isolate.can_fork(rig, native=True) else None

    runs = [run(config) for config in configs]
    how = f"{compiler} {' '.join(compiler_options or ())}"
    text = lambda config: source(dict(config)) if callable(source) else source
    candidates = [(kernel_name, config, f"{text(config)}\n{how}") for config in configs]
    key = f"size={problem_size} {race.describe(inputs)}"
    winner, result = race.compete(
        f"kernel_{kernel_name}", key, candidates, runs, right if answer is not None else runs[0], tuple(inputs), {},
        tolerance=atol, budget=budget, trial=trial,
    )  # fmt: skip
    if result is None:
        return [dict(configs[0], time=None)], {"mode": "nothing was measured", "best": configs[0]}
    rows = _measured(_results(result, configs), metrics)
    return rows, {"best": configs[winner], "key": result["key"], "from_store": result["from_store"]}


def _on_gpu(
    kernel: Kernel,
    name: str,
    arguments: list[Any],
    params: Mapping[str, Sequence[Any]],
    restrictions: Any,
    answer: Sequence[Any] | None,
    atol: float | None,
    budget: float | None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Finds out what a CUDA kernel writes, and tunes it by the road of spec files."""
    rules = kernel_tuner_arguments.restrictions(restrictions, params)
    configs, is_read = listing(params, rules, LISTED + 1)
    if not configs:
        raise ValueError("restrictions: leave no setting of tune_params")
    listed = kernel.is_called() or not is_read
    if listed and len(configs) > LISTED:
        raise ValueError(f"restrictions: leave more than {LISTED} settings, expected fewer where callables are asked")
    outputs = None if answer is None else [i for i, right in enumerate(answer) if right is not None]
    if outputs == []:
        raise ValueError("answer: holds no output, expected the right one for each argument that is one, or no answer")
    try:
        first, roles, left = infer_outputs.infer(kernel, configs, arguments)
    except run_once.Failed as why:
        if outputs is None:
            raise RuntimeError(f"{name}: {why}") from why
        # There is an answer: the race says of each setting why it does not run.
        first, roles, left = configs[0], ["in"] * len(arguments), []
    if answer is not None and outputs is not None:
        # What holds the answer already is written all the same; what has none and is written is as this setting has it.
        roles = ["out" if role == "in" and i in outputs else role for i, role in enumerate(roles)]
        answer = [left[i] if a is None and role != "in" else a for i, (a, role) in enumerate(zip(answer, roles))]
    elif "out" not in roles and "inout" not in roles:
        raise ValueError(f"arguments: {name} changes none of them, expected one that does not hold the answer yet")
    tuned = kernel.tune(arguments, roles, answer, first, None if listed else rules, configs, atol, budget)
    rows = _results(tuned, configs, whole=len(configs) <= LISTED)
    best = {axis: tuned["edition"]["verdict"]["winner"]["config"][axis] for axis in params}
    return rows, {"best": best, "key": tuned["key"], "from_store": tuned["from_store"], "roles": roles}


def _measured(rows: list[dict[str, Any]], metrics: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The rows with a user's metrics where there is a time to work them out from."""
    for row in rows:
        if isinstance(row["time"], float):
            for name, metric in (metrics or {}).items():
                row[name] = metric(row) if callable(metric) else eval(metric, {"__builtins__": {}}, dict(row))
    return rows


def _results(result: dict[str, Any], configs: list[dict[str, Any]], whole: bool = True) -> list[dict[str, Any]]:
    """One row a setting, the fastest first, those that were rejected last. Where the configs are not the ``whole`` of
    the settings, those that were tried are told."""
    names = list(configs[0])
    tried = {_mark(trial["config"], names): trial for trial in result["edition"]["trials"]}
    if not whole:
        configs = [{name: trial["config"][name] for name in names} for trial in tried.values()]
    rows: list[tuple[float, dict[str, Any]]] = []
    for config in configs:
        trial = tried.get(_mark(config, names), {})
        rejected = trial.get("rejected")
        measured = trial.get("measured") or (rejected or {}).get("measurement")
        if measured is not None:
            ms = shown_us(measured, result["edition"]["verdict"]) / 1e3
            rows.append((ms, dict(config, time=ms, times=[us / 1e3 for us in measured["samples_us"]])))
        else:
            reason = "not tried" if rejected is None else f"{rejected['why']}: {rejected.get('reason', '')}"
            rows.append((float("inf"), dict(config, time=reason)))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _mark(config: Mapping[str, Any], names: list[str]) -> tuple[str, ...]:
    return tuple(str(config.get(name)) for name in names)
