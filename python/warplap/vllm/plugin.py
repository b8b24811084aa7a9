"""The entry point: each part of the plugin is offered by itself, and one that fails is left out and says why."""

from __future__ import annotations

import importlib.util
import logging
from typing import Callable

from . import tables

_log = logging.getLogger("warplap")

# What is offered, in order. Each is called perhaps several times in a process and must bear it.
PARTS: list[Callable[[], None]] = [tables.offer]


def register() -> None:
    """Called by vLLM, perhaps several times in a process. What it raised would end vLLM: nothing does."""
    if importlib.util.find_spec("vllm") is None:
        return
    for part in PARTS:
        try:
            part()
        except Exception as error:
            _log.warning("%s: left out: %s: %s", part.__module__, type(error).__name__, error)
