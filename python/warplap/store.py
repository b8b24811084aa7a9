"""The store: where every trial of every key is kept. ``ls``, ``show``, ``export``, ``import_``, ``prove``, ``prune``."""

from __future__ import annotations

import json
import logging
import os
from typing import Any, NamedTuple

from . import _warplap
from .tuner import modes

__all__ = ["Imported", "Proofs", "export", "import_", "ls", "misses", "place", "prove", "prune", "show"]

log = logging.getLogger("warplap")


def place() -> str:
    """The directory, or ``memory``."""
    return _warplap.store_place()[0]


def ls(op: str | None = None) -> list[dict[str, Any]]:
    """Every record, or those of one operation: key, problem, winner, time, hash, bytes."""
    rows: list[dict[str, Any]] = json.loads(_warplap.store_list())
    return [row for row in rows if op is None or row["op"] == op]


def show(hash: str) -> dict[str, Any]:
    """The whole record whose hash begins with these digits: every edition, every trial, every sample."""
    record: dict[str, Any] = json.loads(_warplap.store_show(hash))
    return record


def export(path: str | os.PathLike[str], op: str | None = None) -> int:
    """Writes all records, or those of one operation, to one bundle file; how many."""
    return _warplap.store_export(os.fspath(path), op)


class Proofs(NamedTuple):
    """What became of winners from elsewhere."""

    proved: int
    """Keys whose winner was right on this machine, now or before: it answers."""
    failed: list[tuple[str, str, str]]
    """Who was not: the key, the candidate and why. It is in quarantine, and torch's own call answers."""
    late: list[tuple[str, str]]
    """Keys for which there was no time, and why: torch's own call answers in a replay."""
    raced: int
    """Keys whose winner had never met torch's own call, and raced beside it now."""


class Imported(tuple[int, int, int]):
    """How many records were added, joined with one that was there, and known already; ``proofs`` where they were made."""

    proofs: Proofs | None = None

    def __repr__(self) -> str:
        proofs = "" if self.proofs is None else f", {self.proofs}"
        return f"Imported(added={self[0]}, joined={self[1]}, known={self[2]}{proofs})"


def prove(*, seconds: float | None = None) -> Proofs:
    """Proves every winner from elsewhere on this machine, several at once, so that a replay may use it; begins none after
    so many seconds. A winner that never met torch's own call (``warplap tune`` has none) races beside it once."""
    done = Proofs(**json.loads(_warplap.store_prove(seconds=seconds)))
    failed, late = [(key, name, why) for key, name, why in done.failed], [(key, name) for key, name in done.late]
    done = done._replace(failed=failed, late=late)
    for key, candidate, why in done.failed:
        log.warning("%s: %s is not right here and is not used: %s", key, candidate, why)
    if done.late:
        key, why = done.late[0]
        some = f"{len(done.late)} winners were not proved in time ({key}: {why})"
        log.warning("%s; warplap.store.prove() goes on", some)
    modes.changed()
    return done


_prove = prove


def import_(path: str | os.PathLike[str], *, prove: bool = True, seconds: float = 60.0) -> Imported:
    """Merges a bundle and proves its winners here (:func:`prove`), so that they answer in a replay. With
    ``prove=False`` each is proved at its first use; a replay, which proves nothing, leaves its calls to torch until
    then."""
    done = Imported(_warplap.store_import(os.fspath(path)))
    if prove:
        done.proofs = _prove(seconds=seconds)
    modes.changed()
    return done


def prune(
    *,
    older_than: float | None = None,
    keep: int | None = None,
    stale: bool = False,
    damaged: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Removes records: last written more than so many seconds ago, all but the newest so many, measured under other
    versions only, damaged. With nothing asked for nothing goes."""
    pruned: dict[str, Any] = json.loads(
        _warplap.store_prune(older_than=older_than, keep=keep, stale=stale, damaged=damaged, dry_run=dry_run)
    )
    return pruned


def misses() -> list[dict[str, str]]:
    """What was asked for in mode ``record`` and not found: problems for :func:`warplap.tune`."""
    rows: list[dict[str, str]] = json.loads(_warplap.store_misses())
    return rows
