"""``autotune``: takes the place of ``triton.autotune``, argument for argument.

What is different: candidates run on copies of the arguments and must leave what the first config leaves; they are raced
interleaved with sound statistics instead of timed one after the other; on a GPU they run first in a worker process;
every trial is kept in the store, so that a new process measures nothing and one more config races against the winner
alone.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import warnings
from typing import Any, Callable

import torch
import triton
from triton.runtime.autotuner import Autotuner as TritonAutotuner, Config

from . import _warplap
from .callables import race, sandbox
from .callables.harness import Rig, is_descriptor, leaves
from .tuner.table import shown_us

__all__ = ["Autotuner", "Config", "autotune"]

# How a compiled kernel takes its arguments is Triton's own affair and may change: only versions that were looked at are
# launched directly, others the usual way.
_KNOWN_LAUNCHER = triton.__version__.split(".")[:2] == ["3", "6"] and not triton.knobs.runtime.interpret
_HOOKS = (
    [triton.knobs.runtime.launch_enter_hook.calls, triton.knobs.runtime.launch_exit_hook.calls]
    if _KNOWN_LAUNCHER
    else []
)
# Grids whose launches are kept, for each kernel.
_GRIDS = 64
# Triton's compiler takes several threads at once since it says so itself.
_COMPILES_ASIDE = hasattr(triton, "AsyncCompileMode") and not triton.knobs.runtime.interpret
# Configs that are all raced whatever it takes: `LISTED` of the native half.
_ALL = 48


class Autotuner(TritonAutotuner):
    """A kernel with its configs. Made by :func:`autotune`."""

    def __init__(
        self,
        fn: Any,
        arg_names: list[str],
        configs: list[Config],
        key: list[str],
        *args: Any,
        tolerance: float | None = None,
        budget: float | None = None,
        **kwargs: Any,
    ) -> None:
        for name in (n for n in key if n not in arg_names):
            # Triton takes no notice of it: kernels that are out there have such names.
            warnings.warn(
                f"key: {name!r} is not an argument of {getattr(fn, '__name__', 'the kernel')} and is ignored, "
                f"expected some of {', '.join(arg_names)}",
                stacklevel=3,
            )
        super().__init__(fn, arg_names, configs, key, *args, **kwargs)
        self._begin(tolerance, budget)

    def _begin(self, tolerance: float | None = None, budget: float | None = None) -> None:
        self._tolerance, self._budget = tolerance, budget
        self._made: str | None = None
        self._names = tuple(self.arg_names)
        self._launches: _warplap.Launches | None = None
        self._at: dict[tuple[int, ...], Callable[..., Any]] = {}
        self.last: dict[str, Any] | None = None

    def _source(self) -> str:
        """What a change of makes earlier results stale: the kernel's source with all it calls, and the compiler."""
        if self._made is None:
            fn: Any = self.fn
            while not hasattr(fn, "cache_key") and hasattr(fn, "fn"):
                fn = fn.fn
            text = getattr(fn, "cache_key", None) or race.source_of(self.base_fn)
            hooks = [race.source_of(h) for h in (self.pre_hook, self.post_hook) if self._is_own(h)]
            self._made = "\n".join([str(text), triton.__version__, *hooks])
        return self._made

    def _is_own(self, hook: Any) -> bool:
        return (self.user_defined_pre_hook and hook is self.pre_hook) or (
            self.user_defined_post_hook and hook is self.post_hook
        )

    def _tuning_key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        named = {k: v for k, v in {**dict(zip(self.arg_names, args)), **kwargs}.items() if k in self.arg_names}
        # Of a tensor, what it looks like: where it lies is new with every call.
        values = [race.describe(named[k]) if leaves(named[k]) else named[k] for k in self.keys if k in named]
        tensors = (v.base if is_descriptor(v) else v for v in named.values())
        return (*values, *(str(t.dtype) for t in tensors if hasattr(t, "dtype")))

    def _launch(self, config: Config, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """One launch as a trial: with the hooks, and with zeros where the user asked for them."""
        current = dict(kwargs, **config.all_kwargs())
        full = {**dict(zip(self.arg_names, args)), **current}
        if config.pre_hook is not None:
            config.pre_hook(full)
        if self.user_defined_pre_hook:
            self.pre_hook(full)
        else:
            for name in self.reset_to_zero:
                full[name].zero_()
        try:
            self.fn.run(*args, grid=grid, warmup=False, **current)
        except Exception as error:
            if self.user_defined_post_hook:
                self.post_hook(full, exception=error)
            raise
        if self.user_defined_post_hook:
            self.post_hook(full, exception=None)

    def _decide(self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        rest = {k: v for k, v in kwargs.items() if k not in ("grid", "warmup")}
        grid = kwargs["grid"]
        self.nargs = dict(zip(self.arg_names, args))
        configs = list(self.prune_configs(kwargs))
        for config in configs:
            conflicts = rest.keys() & config.kwargs.keys()
            if conflicts:
                raise ValueError(f"{', '.join(conflicts)}: is given, and is what the configs set")
        if len(configs) == 1:
            return configs[0]
        name, source = self.base_fn.__name__, self._source()
        candidates = [(name, _settings(c), source + _hook_source(c)) for c in configs]
        runs = [functools.partial(_call, self, config, grid) for config in configs]
        tried: dict[int, tuple[str, str, float] | None] = {}

        def refused(i: int, a: tuple[Any, ...], k: dict[str, Any]) -> tuple[str, str, float] | None:
            """Why a config must not be launched here: it has harmed the worker."""
            if not tried:
                self._compile_all(configs, grid, a, k)
            if i not in tried:
                tried[i] = self._try_out(configs[i], grid, a, k)
            return tried[i]

        def checked(i: int, *a: Any, **k: Any) -> Any:
            harm = refused(i, a, k)
            if harm is not None:
                raise RuntimeError(harm[1])
            return runs[i](*a, **k)

        def reference(*a: Any, **k: Any) -> Any:
            """The first config that can be launched."""
            errors = []
            for i in range(len(runs)):
                try:
                    return checked(i, *a, **k)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except Exception as error:
                    errors.append(f"{type(error).__name__}: {error}")
            raise RuntimeError(f"no config of {name} can be launched: {'; '.join(errors)[:1000]}")

        def restore(rig: Rig) -> None:
            rig.reset()

        names = [n for n in self.keys if n in self.arg_names and (n in self.nargs or n in rest)]
        text = ",".join([*(f"{n}={v}" for n, v in zip(names, key)), *map(str, key[len(names) :])])
        winner, result = race.compete(
            f"triton_{name}",
            text,
            candidates,
            runs,
            reference,
            args,
            rest,
            tolerance=self._tolerance,
            budget=self._budget,
            mode=self._mode(),
            before=restore if self.restore_value else None,
            trial=lambda rig, i: refused(i, rig.args, rig.kwargs),
            settle=self._settle([functools.partial(checked, i) for i in range(len(runs))], configs),
        )
        if result is not None:
            self.cache[key] = configs[winner]
            self.last = result
            self.configs_timings = _timings(result, configs)
        return configs[winner]

    def _mode(self) -> str | None:
        """The mode that its races go by, where that is not the process's."""
        return None

    def _settle(self, runs: list[Callable[..., Any]], configs: list[Config]) -> Callable[[Rig], None] | None:
        """How a rig finds its reference, where that is not the first config."""
        return None

    def _compile_all(
        self, configs: list[Config], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Compiles the configs side by side before any of them is timed. What fails is told when its turn comes."""
        device = _gpu(args, kwargs)
        if device is None or not _COMPILES_ASIDE or len(configs) > _ALL:
            return
        if sandbox.is_on():
            sandbox.worker.begin()
        jit: Any = self.fn
        while not hasattr(jit, "device_caches") and hasattr(jit, "fn"):
            jit = jit.fn
        jit.device_caches[device.index]  # made once, before many ask for it

        def compile_one(config: Config) -> None:
            with torch.cuda.device(device), contextlib.suppress(Exception):
                self.fn.run(*args, grid=grid, warmup=True, **kwargs, **config.all_kwargs())

        # Hooks are the user's and may do anything: their configs are compiled by their first launch.
        plain = [c for c in configs if c.pre_hook is None and not self.user_defined_pre_hook]
        with concurrent.futures.ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 16)) as threads:
            list(threads.map(compile_one, plain))

    def _try_out(
        self, config: Config, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, str, float] | None:
        """Compiles a config and runs it in the worker first. Configs with hooks, which may do anything, are not."""
        on_gpu = _gpu(args, kwargs) is not None
        if not on_gpu or not sandbox.is_on() or config.pre_hook is not None or self.user_defined_pre_hook:
            return None
        kernel = self.fn.run(*args, grid=grid, warmup=True, **kwargs, **config.all_kwargs())
        named = {**dict(zip(self._names, args)), **kwargs, **config.all_kwargs()}
        sizes = grid(named) if callable(grid) else grid
        return sandbox.try_kernel(kernel, list(self._names), [named.get(name) for name in self._names], tuple(sizes))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launches with the config of choice for the key's values; races the configs where it is not known."""
        if len(self.configs) > 1:
            key = self._tuning_key(args, kwargs)
            config = self.cache.get(key)
            if config is None:
                config = self._decide(key, args, kwargs)
        else:
            config = self.configs[0]
        self.best_config = config
        self.nargs = {}
        if config.pre_hook is not None:
            config.pre_hook({**dict(zip(self.arg_names, args)), **kwargs, **config.all_kwargs()})
        kernel = self.fn.run(*args, **kwargs, **config.all_kwargs())
        if _KNOWN_LAUNCHER and len(self.configs) > 1 and kwargs.keys() == {"grid", "warmup"} and not kwargs["warmup"]:
            self._remember(args, config, kernel)
        return kernel

    def _remember(self, args: tuple[Any, ...], config: Config, kernel: Any) -> None:
        """Keeps a compiled kernel, so that the next launch with arguments like these goes straight to it."""
        rest = self._names[len(args) :]
        if (
            self._tuning_key(args, {}) not in self.cache
            or not isinstance(self.fn, triton.runtime.JITFunction)
            or self.fn.pre_run_hooks
            or self.fn.used_global_vals
            or config.pre_hook is not None
            or not set(rest) <= config.kwargs.keys()
            or any(leaves(a) for n, a in zip(self._names, args) if n in self.keys)
        ):
            return
        try:
            facts, types, function = kernel.metadata, kernel.src.signature, kernel.function
            plain = facts.num_ctas == 1 and not (facts.launch_pdl or facts.launch_cooperative_grid)
            scratch = facts.global_scratch_size or facts.profile_scratch_size
            threads, shared, kinds = 32 * facts.num_warps, facts.shared, [types[name] for name in self._names]
        except (AttributeError, KeyError):  # a Triton that keeps them elsewhere
            return
        if not plain or scratch or not isinstance(function, int) or not all(isinstance(k, str) for k in kinds):
            return
        if self._launches is None:
            keyed = [name in self.keys for name in self._names]
            self._launches = _warplap.Launches(self._names, keyed, _HOOKS)
        tail = [config.kwargs[name] for name in rest]
        self._launches.keep(args, function, threads, shared, kinds, tail, kernel, config)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        result = self._at.get(grid) if type(grid) is tuple else None
        if result is not None:
            return result
        launches = self._launches
        if launches is None:
            return super().__getitem__(grid)  # type: ignore[no-any-return]
        if callable(grid):
            return launches.at(self, grid)
        grid = tuple(grid)
        if len(self._at) >= _GRIDS:
            self._at.clear()
        result = self._at[grid] = launches.at(self, grid)
        return result


def _gpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """The GPU that the arguments are on."""
    return next((v.device for v in (*args, *kwargs.values()) if getattr(v, "is_cuda", False)), None)


def _call(tuner: Autotuner, config: Config, grid: Any, *args: Any, **kwargs: Any) -> None:
    tuner._launch(config, grid, args, kwargs)


def _settings(config: Config) -> dict[str, Any]:
    return {k: v for k, v in config.all_kwargs().items()}


def _hook_source(config: Config) -> str:
    return "" if config.pre_hook is None else race.source_of(config.pre_hook)


def _timings(result: dict[str, Any], configs: list[Config]) -> dict[Config, list[float]]:
    """Milliseconds by config as Triton keeps them: median and interval; infinite for those that were rejected."""
    known = {}
    for trial in result["edition"]["trials"]:
        measured = trial.get("measured") or (trial.get("rejected") or {}).get("measurement")
        known[str(sorted((k, str(v)) for k, v in trial["config"].items()))] = measured
    timings = {}
    for config in configs:
        m = known.get(str(sorted((k, str(v)) for k, v in _settings(config).items())))
        if m is None:
            timings[config] = [float("inf")] * 3
            continue
        shown = shown_us(m, result["edition"]["verdict"]) / 1e3
        timings[config] = [shown, *(shown * us / m["median_us"] for us in m["ci_us"])]
    return timings


def autotune(
    configs: list[Config],
    key: list[str],
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: list[str] | None = None,
    restore_value: list[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
    *,
    tolerance: float | None = None,
    budget: float | None = None,
) -> Callable[[Any], Autotuner]:
    """Takes the place of ``triton.autotune``: same arguments, same meaning.

    ``warmup``, ``rep``, ``use_cuda_graph``, ``do_bench`` and ``cache_results`` are taken and not needed: the race
    decides how often it must measure, and results are always kept. ``tolerance`` is how far, relative to the largest
    value, a config's output may be from the first one's; ``budget`` the seconds of measuring a race may take. Up to 48
    configs everyone is compiled, proved and measured; of more, as many as the budget lets.
    """

    def wrap(fn: Any) -> Autotuner:
        return Autotuner(
            fn,
            fn.arg_names,
            configs,
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            tolerance=tolerance,
            budget=budget,
        )

    return wrap
