"""vLLM's own ``@triton.autotune`` kernels, proved and kept: ``WARPLAP_VLLM_TRITON=1``.

From ``begin`` on a kernel that is defined in one of vLLM's modules and tuned by ``triton.autotune`` is made a
:class:`Taken`; those that are there already are changed for one where they lie. Kernels of others stay what they are.

What is known to the store is used and nothing is measured. What is not known is tuned by Triton as it would be without
this, or, with ``WARPLAP_VLLM_MODE=tune``, raced and proved: configs that leave a wrong answer never win.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from typing import Any, Callable

from . import modes

_log = logging.getLogger("warplap")
_SWITCH = "WARPLAP_VLLM_TRITON"
# What vLLM takes for yes where it is asked for the first config and no tuning at all.
_FIRST, _YES = "VLLM_TRITON_FORCE_FIRST_CONFIG", ("1", "true")


def begin() -> None:
    """Takes them over, where that was asked for and there is something to take over."""
    if os.environ.get(_SWITCH, "").strip().lower() not in _YES:
        return
    modes.wanted()  # a mode that there is not is told now, not at the first launch
    if os.environ.get(_FIRST, "").strip().lower() in _YES:
        _log.info("%s: vLLM's Triton kernels are left alone, as %s asks for their first configs", _SWITCH, _FIRST)
        return
    from vllm.triton_utils import HAS_TRITON  # type: ignore[import-not-found]

    if not HAS_TRITON:  # then kernels are plain functions that nobody calls
        _log.info("%s: vLLM does without Triton here: there is nothing to take over", _SWITCH)
        return
    from . import triton_kernel

    _decorate()
    swapped = swap(triton_kernel.of)
    _log.info("%s: vLLM's Triton kernels are taken over, %d that were there already", _SWITCH, swapped)


def is_theirs(name: Any) -> bool:
    """Whether a module is one of vLLM's."""
    return name == "vllm" or str(name).startswith("vllm.")


def _decorate() -> None:
    """Puts ourselves behind ``triton.autotune``: what it makes of vLLM's kernels is taken over."""
    import triton

    from . import triton_kernel

    usual = triton.autotune
    if getattr(usual, "takes_over", False):
        return

    @functools.wraps(usual)
    def autotune(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        decorator = usual(*args, **kwargs)
        return lambda fn: triton_kernel.of(decorator(fn))

    autotune.takes_over = True  # type: ignore[attr-defined]
    triton.autotune = autotune


def swap(of: Callable[[Any], Any]) -> int:
    """Changes the kernels in modules of vLLM's that are imported already; how many."""
    from triton.runtime.autotuner import Heuristics

    made: dict[int, Any] = {}
    kept = []  # an id says who somebody is only while he is there
    for name, module in list(sys.modules.items()):
        if not is_theirs(name) or module is None:
            continue
        for field, value in list(vars(module).items()):
            holder, place = (value, "fn") if type(value) is Heuristics else (module, field)
            value = getattr(holder, place, None)
            ours = made.get(id(value)) or of(value)
            if ours is not value:
                made[id(value)] = ours
                kept.append(value)
                setattr(holder, place, ours)
    return len(made)
