"""How a process of this interpreter is started that finds this very package, wherever it was loaded from."""

from __future__ import annotations

import sys
from pathlib import Path


def command(statement: str) -> list[str]:
    """The command that runs a statement: ``command("import warplap.callables.worker as p; p.serve()")``."""
    folder = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r}); {statement}"]
