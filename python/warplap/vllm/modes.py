"""What is done inside vLLM about problems nobody has measured yet: nothing, unless somebody says so.

A server must not stop to measure. So in its processes the store answers and no call races, whatever the package does by
default. ``WARPLAP_VLLM_MODE=tune`` lets those parts race that say so, before vLLM serves anybody.
"""

from __future__ import annotations

import functools
import os

from ..callables import race
from ..tuner import modes


def wanted() -> str:
    """What was asked for: ``WARPLAP_VLLM_MODE``, else ``WARPLAP_MODE``, else ``replay``."""
    name = os.environ.get("WARPLAP_VLLM_MODE")
    if name not in (None, "", "replay", "tune"):
        raise ValueError(f"WARPLAP_VLLM_MODE: is '{name}', expected replay or tune")
    return name or os.environ.get("WARPLAP_MODE") or "replay"


def begin() -> None:
    """Lets no call of this process race, unless ``WARPLAP_MODE`` says what calls do."""
    wanted()
    if not os.environ.get("WARPLAP_MODE") and modes.mode() != "replay":
        modes.set_mode("replay")


@functools.cache
def weights_are_cold() -> None:
    """From now on races and lookups of this process are those of cold caches: weights of a model do not stay there from
    one step to the next, and a kernel that wins by finding them there wins nothing."""
    modes.configure(cache="cold")


def may_race() -> bool:
    """Whether races are let happen now: not while a graph is captured, and not once vLLM has warmed up and watches for
    whoever still compiles."""
    if wanted() != "tune" or race.capturing():
        return False
    try:
        from vllm.utils.jit_monitor import is_active  # type: ignore[import-not-found]
    except ImportError:  # a version without it
        return True
    return not is_active()
