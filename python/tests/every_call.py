"""Calls of every operator with each of its arguments, from ``calls_<operator>.py`` beside the operator's tests."""

from __future__ import annotations

import runpy
from pathlib import Path

_FILES = sorted((Path(__file__).parent / "ops").rglob("calls_*.py"), key=lambda file: file.stem)

# What each operator is called with at the least, and calls with each argument that it may have.
CALLS = {file.stem.removeprefix("calls_"): runpy.run_path(str(file))["CALL"] for file in _FILES}
