"""What whole graphs take, told from their parts: of sizes that were raced, times of parts and of wholes are known side by
side. What one was worth in the other, and how much that varied from size to size, says what a new size will take and how
far off that may be. Where the choice is clear by that, nobody races.

What was measured is remembered for the process: only what was raced is kept in the store.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Mapping

# Sizes of a graph that must have been raced before one is told without a race.
_FEWEST = 2

# How far off the same thing is when it is measured twice.
_NOISE = 0.02

# How many times smaller or larger than what was measured a size may be.
_REACH = 4.0


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
    if len(sizes) < _FEWEST or not parts:
        return None
    told: dict[str, tuple[float, float]] = {}
    for name, seconds in parts.items():
        known = [(size.parts[name], size.wholes[name]) for size in sizes if name in size.wholes and name in size.parts]
        if len(known) < _FEWEST or not seconds > 0.0 or min(min(pair) for pair in known) <= 0.0:
            return None  # nobody knows what this one takes
        own = [part for part, _ in known]
        if not min(own) / _REACH <= seconds <= max(own) * _REACH:
            return None
        worth = [math.log(whole / part) for part, whole in known]
        off = max(max(worth) - min(worth), _NOISE)
        told[name] = (seconds * math.exp(sum(worth) / len(worth)), off)
    winner = min(told, key=lambda name: told[name][0])
    slowest = told[winner][0] * math.exp(told[winner][1])
    if any(mid * math.exp(-off) <= slowest for name, (mid, off) in told.items() if name != winner):
        return None
    off = math.exp(max(off for _, off in told.values())) - 1.0
    return Guess(winner, {name: mid for name, (mid, _) in told.items()}, off, len(sizes))


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
