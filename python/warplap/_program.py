"""The program ``warplap``: the script of that name, and ``python -m warplap``. Nothing but the native half is
loaded."""

from __future__ import annotations

import os
import sys
import sysconfig

from . import _warplap

_SCRIPTS = ("warplap", "warplap.exe")


def _is_for_vllm() -> bool:
    """Whether it is ``warplap vllm …``, which is written in Python and needs the whole package."""
    return sys.argv[1:2] == ["vllm"]


def asked() -> bool:
    """Whether this process is the program, and the native half is all it takes."""
    if _is_for_vllm():
        return False
    if os.path.basename(sys.argv[0] if sys.argv else "") in _SCRIPTS:
        return True
    inputs = sys.orig_argv
    return any(pair == ("-m", "warplap") for pair in zip(inputs, inputs[1:])) and sys.argv[0] == "-m"


def main() -> int:
    """Runs it; the exit code."""
    if _is_for_vllm():
        from .vllm.program import main as vllm

        return vllm(sys.argv[2:])
    script = os.path.join(sysconfig.get_path("scripts"), "warplap")
    if os.access(script, os.X_OK):  # GPU kernels are proved in processes of their own, which it starts
        os.environ.setdefault("WARPLAP_WORKER", script)
        os.environ.setdefault("WARPLAP_PROGRAM", script)  # what engines of a fleet start
    if "fleet" in sys.argv:
        os.environ.setdefault("WARPLAP_PYTHON", sys.executable)
    return _warplap.program(["warplap", *sys.argv[1:]])
