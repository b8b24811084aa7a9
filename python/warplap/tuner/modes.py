"""What is done about problems nobody has measured yet: the mode, as a function and as a context manager."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Callable, Literal

from .. import _warplap
from . import progress as tuner_progress

Mode = Literal["off", "replay", "record", "tune", "background"]

# What is to be forgotten when the mode or a setting changes: choices that Python keeps by itself.
_forgets: list[Callable[[], None]] = []

_budget = 4.0


def when_changed(forget: Callable[[], None]) -> None:
    """Lets somebody know that the mode, a setting or a list of variants is another one."""
    _forgets.append(forget)


def changed() -> None:
    """Tells them."""
    for forget in _forgets:
        forget()


def budget() -> float:
    """Seconds of measuring that a key has."""
    return _budget


def mode() -> Mode:
    """The present mode of the process.

    ``off``: neither store nor measuring, torch's own functions. ``replay``: answers from the store, never
    measures. ``record``: as replay, and remembers what was missed. ``tune`` (the default): races what it does not know.
    ``background``: as tune, but no call waits: torch's own operator answers while a thread races, and the winner takes
    over when it is decided.
    """
    return _warplap.mode()  # type: ignore[return-value]


class set_mode:
    """Sets the mode of the process; used in a ``with`` statement, until its end.

    >>> set_mode("replay")            # from now on
    >>> with set_mode("off"): ...     # for these lines
    """

    def __init__(self, mode: Mode) -> None:
        self._before = _warplap.mode()
        _warplap.set_mode(mode)
        changed()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _warplap.set_mode(self._before)
        changed()


def off() -> set_mode:
    """``set_mode("off")``: neither store nor measuring."""
    return set_mode("off")


def replay() -> set_mode:
    """``set_mode("replay")``: answers from the store alone."""
    return set_mode("replay")


def record() -> set_mode:
    """``set_mode("record")``: answers from the store, remembers what was missed."""
    return set_mode("record")


def tuning() -> set_mode:
    """``set_mode("tune")``: races what is not known."""
    return set_mode("tune")


def configure(
    *,
    store: str | os.PathLike[str] | None = None,
    in_memory: bool = False,
    budget: float | None = None,
    bucket: Literal["changing", "exact", "pow2"] | None = None,
    threads: int | None = None,
    search: str | None = None,
    clock: Literal["use", "back-to-back"] | None = None,
    cache: Literal["hot", "cold"] | None = None,
    progress: bool | None = None,
    mode: Mode | None = None,
) -> None:
    """Changes what is given and keeps the rest: the mode (see :func:`mode`), where records are kept, seconds per key,
    rounding of sizes, threads, the search by its name (one of your own too, see :func:`register_search`), the clock
    (``use`` times a call as programs make it, behind other work; ``back-to-back`` times it behind itself), what is in
    the cache when a timed call begins (``hot``: its arguments; ``cold``: other data, as for the weights of a model that
    is larger than the cache), and whether a race of a first call shows a line on a terminal (``WARPLAP_PROGRESS=0`` in
    the environment turns it off too). Clock and cache are part of a key: each has records of its own."""
    global _budget
    if mode is not None:
        _warplap.set_mode(mode)
    if progress is not None:
        tuner_progress.show(progress)
    _warplap.configure(
        store=None if store is None else os.fspath(store),
        in_memory=in_memory,
        budget=budget,
        bucket=bucket,
        threads=threads,
        search=search,
        clock=clock,
        cache=cache,
    )
    _budget = _budget if budget is None else budget
    changed()
