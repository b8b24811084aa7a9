"""vLLM: the entry point that vLLM calls in each of its processes (group ``vllm.general_plugins``).

Tables written by ``warplap export KERNEL --vllm-moe E=…,N=… -o FOLDER`` are found by vLLM where
``VLLM_TUNED_CONFIG_FOLDER`` says so. The plugin says so for the usual folder when it holds tables and nobody has said
otherwise. Without vLLM, or with nothing to offer, it does nothing and says nothing.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path

__all__ = ["folder", "register"]

_log = logging.getLogger("warplap")
_TABLES = "VLLM_TUNED_CONFIG_FOLDER"


def folder() -> Path:
    """Where the plugin looks for tables: ``WARPLAP_VLLM_TABLES``, or ``vllm`` in the user's cache directory."""
    named = os.environ.get("WARPLAP_VLLM_TABLES")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache) / "warplap" / "vllm"


def register() -> None:
    """Called by vLLM, perhaps several times in a process."""
    if importlib.util.find_spec("vllm") is None or os.environ.get(_TABLES):
        return
    try:
        tables = sorted(folder().glob("E=*,N=*,device_name=*.json"))
    except OSError:
        return
    if tables:
        os.environ[_TABLES] = str(folder())
        _log.info("vLLM reads %d tables of fused experts from %s", len(tables), folder())
