"""What whole graphs take, told from their parts: of sizes that were raced, times of parts and of wholes are known side
by side. What one was worth in the other, and how much that varied from size to size, says what a new size will take and
how far off that may be. Where the choice is clear by that, nobody races. The arithmetic is
``warplap_core::graph::guess``.

What was measured is remembered for the process: only what was raced is kept in the store.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping

from ... import _warplap


@dataclasses.dataclass(frozen=True)
class Size:
    """One that was raced: seconds of the parts of every choice, and of all of it."""

    parts: Mapping[str, float]
    wholes: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Guess:
    """Who is fastest without a race, what everyone will take, and how far off that may be, as a share."""

    winner: str
    seconds: Mapping[str, float]
    off: float
    sizes: int


def guess(sizes: list[Size], parts: Mapping[str, float]) -> Guess | None:
    """Who of these choices is fastest, where what is known of other sizes says it beyond doubt."""
    result = _warplap.guess([(dict(size.parts), dict(size.wholes)) for size in sizes], dict(parts))
    return None if result is None else Guess(*result)


_known: dict[str, list[Size]] = {}

# Sizes of one graph that are remembered.
_MOST = 32


def remember(graph: str, size: Size) -> None:
    """A size of a graph that was raced."""
    sizes = _known.setdefault(graph, [])
    sizes.append(size)
    del sizes[:-_MOST]


def known(graph: str) -> list[Size]:
    """The sizes of a graph that were raced in this process."""
    return _known.get(graph, [])


def forget() -> None:
    _known.clear()
