"""The progress line: while a first call races on a terminal, one line on stderr says so; at the end it is erased."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any

from .table import time_text

_OFF = ("0", "off", "no", "false")
_wanted = os.environ.get("WARPLAP_PROGRESS", "").lower() not in _OFF

# Seconds between two forms of the line: a race has thousands of events.
_EVERY = 0.1


def show(wanted: bool) -> None:
    """Turns the line on or off."""
    global _wanted
    _wanted = wanted


class Line:
    """Hears the events of one race."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._started, self._shown = stream, time.monotonic(), 0.0
        self._problem, self._leader, self._tried = "", "", 0

    def tell(self, event: str, what: Any, number: Any) -> None:
        """Something happened."""
        if event == "started":
            self._problem, self._leader = what, ""
        elif event == "tried":
            self._tried += 1
        elif event == "leader":
            self._leader = f", {what} leads with {time_text(number)}"
        elif event == "waiting":
            self._leader = f", waiting for {what}"
        now = time.monotonic()
        if now - self._shown >= _EVERY:
            self._shown = now
            text = f"warplap: {self._problem}: {now - self._started:.1f} s, {self._tried} tried{self._leader}"
            self._write(text[: max(shutil.get_terminal_size().columns - 1, 1)])

    def close(self) -> None:
        """The race has ended."""
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
        except (OSError, ValueError):  # nobody looks any more
            pass


def line() -> Line | None:
    """A line where somebody looks: stderr is a terminal, and nobody turned it off."""
    stream = sys.stderr
    if not _wanted or stream is None or os.environ.get("TERM") == "dumb":
        return None
    try:
        return Line(stream) if stream.isatty() else None
    except (AttributeError, ValueError):
        return None
