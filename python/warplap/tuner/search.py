"""Searches of your own: who is tried next is decided in Python, everything else stays as it is."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Protocol, Sequence

from .. import _warplap
from .._warplap import Arm

Setting = dict[str, Any]


class Search(Protocol):
    """Proposes candidates and hears what became of them."""

    def ask(self, at_most: int) -> Iterable[tuple[str, Setting]]:
        """Up to so many pairs of a variant and a setting; none when the search has ended."""

    def tell(self, variant: str, setting: Setting, us: float | None, why: str | None) -> None:
        """What became of one: microseconds, or None and why it was rejected."""


def register_search(
    name: str, make: Callable[[Sequence[Arm], int, Sequence[tuple[str, Setting]]], Search]
) -> None:
    """Adds a search to this process; ``configure(search=name)`` asks for it.

    ``make(arms, seed, donors)`` is called at the start of each race. An arm is one variant's part: a sequence of its
    legal settings, the default first, with ``variant``, ``priority`` and ``axes``. Donors won elsewhere, best first.
    What it gives has the two functions of :class:`Search`. Nobody is raced twice; who is no candidate is a
    ``ValueError``, raised when the race has been put away.
    """
    _warplap.register_search(name, make)
