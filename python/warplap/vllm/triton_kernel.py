"""A kernel of vLLM's with its configs: the store answers, else Triton tunes as ever. Loads Triton."""

from __future__ import annotations

import logging
from typing import Any, Callable

from triton.runtime.autotuner import Autotuner as TritonAutotuner, Config

from .. import _warplap
from ..callables.consensus import agreed
from ..callables.harness import Rig
from ..triton import Autotuner, _settings
from . import modes, takeover

_log = logging.getLogger("warplap")


class Taken(Autotuner):
    """Like :class:`warplap.triton.Autotuner`, but for who answers where nothing is known (Triton's own tuning, and
    also where a race comes to nothing), and for who is right (configs that vouch for each other, not the first)."""

    def _begin(self, tolerance: float | None = None, budget: float | None = None) -> None:
        super()._begin(tolerance, budget)
        self._left: set[Any] = set()

    def _mode(self) -> str | None:
        return "off" if _warplap.mode() == "off" else "tune" if modes.may_race() else "replay"

    def _settle(self, runs: list[Callable[..., Any]], configs: list[Config]) -> Callable[[Rig], None] | None:
        settings = [_settings(config) for config in configs]
        return lambda rig: rig.settle(runs[agreed(rig, runs, settings, self._tolerance)])

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launches with the config of choice for the key's values, whoever knows it."""
        if len(self.configs) < 2:
            return super().run(*args, **kwargs)
        key = self._tuning_key(args, kwargs)
        if key not in self.cache and key not in self._left:
            try:
                self._decide(key, args, kwargs)
            except Exception as error:
                _log.warning("%s: tuned by Triton: %s: %s", self.base_fn.__name__, type(error).__name__, error)
            if key not in self.cache:
                self._left.add(key)
        if key in self._left:
            return TritonAutotuner.run(self, *args, **kwargs)
        return super().run(*args, **kwargs)


def of(value: Any) -> Any:
    """The value, or what takes its place: a tuned kernel that one of vLLM's modules defines, made by Triton alone."""
    if type(value) is not TritonAutotuner or not takeover.is_theirs(value.base_fn.__module__):
        return value
    # Whatever Triton has made of its arguments stays, hooks that hold on to the former one too.
    ours = Taken.__new__(Taken)
    ours.__dict__.update(value.__dict__)
    ours._begin()
    return ours
