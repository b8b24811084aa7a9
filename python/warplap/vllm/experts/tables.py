"""Tables of fused experts, offered to vLLM.

Tables written by ``warplap vllm tune`` are found by vLLM where ``VLLM_TUNED_CONFIG_FOLDER`` says so. The plugin says so
for the usual folder when it holds tables for the device at hand and nobody has said otherwise; it logs that, because
the variable changes one more thing: adapters (LoRA) of experts take other tiles where it is set. With nothing to offer
it does nothing and says nothing.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

_log = logging.getLogger("warplap")
_TABLES = "VLLM_TUNED_CONFIG_FOLDER"


def folder() -> Path:
    """Where the plugin looks for tables: ``WARPLAP_VLLM_TABLES``, or ``vllm`` in the user's cache directory."""
    named = os.environ.get("WARPLAP_VLLM_TABLES")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache) / "warplap" / "vllm"


def _device() -> str | None:
    """The device's name as vLLM writes it into a table's, where it knows one."""
    try:
        from vllm.platforms import current_platform  # type: ignore[import-not-found]

        name = str(current_platform.get_device_name()).replace(" ", "_").replace("/", "_")
    except Exception:  # a platform without names, or another version: then no table is found anyway
        return None
    return "NVIDIA_H200" if "H200" in name.split("_") else name


def _is_for(device: str, table: str) -> bool:
    named = table.removesuffix(".json").partition(",device_name=")[2]
    return named == device or named.startswith(f"{device},")


def offer() -> None:
    """Names the folder to vLLM, where that helps somebody."""
    if os.environ.get(_TABLES):
        return
    try:
        tables = [path.name for path in folder().glob("E=*,N=*,device_name=*.json")]
    except OSError:
        return
    device = _device() if tables else None
    ours = [] if device is None else [name for name in tables if _is_for(device, name)]
    if ours:
        os.environ[_TABLES] = str(folder())
        _log.info(
            "vLLM reads %d tables of fused experts for %s from %s; adapters (LoRA) of experts take other tiles with"
            " them: to leave it out, set %s yourself",
            len(ours), device, folder(), _TABLES,
        )  # fmt: skip
