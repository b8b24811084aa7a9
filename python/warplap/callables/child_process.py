"""How a process of this interpreter is started that finds this very package, wherever it was loaded from."""

from __future__ import annotations

import os
import sys


def command(statement: str) -> list[str]:
    """The command that runs a statement: ``command("import warplap.callables.worker as p; p.serve()")``."""
    folder = os.path.abspath(os.path.join(os.path.dirname(__file__), *(os.pardir,) * 2))
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r}); {statement}"]
