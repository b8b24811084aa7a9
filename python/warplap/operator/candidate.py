"""``Candidate``: a form of torch's own that races in an operation, declared beside the operator it belongs to."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

DEVICES = ("cpu", "cuda")


class Candidate(NamedTuple):
    """What :func:`warplap.add_variant` takes, once for each of ``devices``.

    A module of ``ops/`` or ``candidates/`` has a list of them, ``CANDIDATES``. Of two that are as fast the earlier one
    wins: modules join in the order of their names.
    """

    op: str
    name: str
    call: Callable[..., Any]
    fit: Callable[[str], str | None] | None = None
    devices: tuple[str, ...] = DEVICES
    facts: Callable[[str], dict[str, Any]] | None = None
    returns: bool = False
    give: Callable[..., Any] | None = None
    as_called: dict[str, Callable[..., Any]] | None = None
    """torch's own functions, by the names of ours that take the same arguments: no proof sees them."""
    space: Callable[[str], dict[str, list[int]]] | None = None
    prepare: Callable[..., Any] | None = None
