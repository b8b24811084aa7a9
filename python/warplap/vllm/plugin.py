"""The entry point: each part of the plugin is offered by itself, and one that fails is left out and says why."""

from __future__ import annotations

import importlib.util
import logging
from typing import Callable

from . import takeover
from .experts import tables

_log = logging.getLogger("warplap")


def _linears() -> None:
    from . import linears  # loads what vLLM has of layers

    linears.register()


def _ir() -> None:
    from . import ir  # loads torch

    ir.offer()


def _attention() -> None:
    from . import attention

    attention.offer()


# What is offered, with a name for the log. Each is called perhaps several times in a process and must bear it.
PARTS: list[tuple[str, Callable[[], None]]] = [
    ("tables of experts", tables.offer),
    ("Triton's kernels", takeover.begin),
    ("linears", _linears),
    ("norms", _ir),
    ("attention", _attention),
]


def register() -> None:
    """Called by vLLM, perhaps several times in a process. What it raised would end vLLM: nothing does."""
    if importlib.util.find_spec("vllm") is None:
        return
    for name, part in PARTS:
        try:
            part()
        except Exception as error:
            _log.warning("warplap for vLLM: %s: left out: %s: %s", name, type(error).__name__, error)
