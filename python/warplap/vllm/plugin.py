"""The entry point: each part of the plugin is offered by itself, and one that fails is left out and says why."""

from __future__ import annotations

import importlib.util
import logging
from typing import Callable

from . import tables, takeover

_log = logging.getLogger("warplap")


def _ir() -> None:
    from . import ir  # loads torch

    ir.offer()


def _attention() -> None:
    from . import attention

    attention.offer()


# What is offered, in order. Each is called perhaps several times in a process and must bear it.
PARTS: list[Callable[[], None]] = [tables.offer, takeover.begin, _ir, _attention]


def register() -> None:
    """Called by vLLM, perhaps several times in a process. What it raised would end vLLM: nothing does."""
    if importlib.util.find_spec("vllm") is None:
        return
    for part in PARTS:
        try:
            part()
        except Exception as error:
            _log.warning("%s: left out: %s: %s", part.__module__, type(error).__name__, error)
