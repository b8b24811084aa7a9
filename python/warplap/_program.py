"""The program ``warplap``: the script of that name, and ``python -m warplap``. Nothing but the native half is loaded."""

from __future__ import annotations

import os
import sys
import sysconfig

from . import _warplap

_SCRIPTS = ("warplap", "warplap.exe")


def asked() -> bool:
    """Whether this process is the program."""
    if os.path.basename(sys.argv[0] if sys.argv else "") in _SCRIPTS:
        return True
    given = sys.orig_argv
    return any(pair == ("-m", "warplap") for pair in zip(given, given[1:])) and sys.argv[0] == "-m"


def main() -> int:
    """Runs it; the exit code."""
    script = os.path.join(sysconfig.get_path("scripts"), "warplap")
    if os.access(script, os.X_OK):  # GPU kernels are proved in processes of their own, which it starts
        os.environ.setdefault("WARPLAP_WORKER", script)
        os.environ.setdefault("WARPLAP_PROGRAM", script)  # what engines of a fleet start
    if "fleet" in sys.argv:
        os.environ.setdefault("WARPLAP_PYTHON", sys.executable)
    return _warplap.program(["warplap", *sys.argv[1:]])
