"""The store: where every trial of every key is kept. ``ls``, ``show``, ``export``, ``import_``, ``prune``."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _warplap

__all__ = ["export", "import_", "ls", "misses", "place", "prune", "show"]


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


def import_(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Merges a bundle: how many records were added, joined with one that was there, and known already."""
    return _warplap.store_import(os.fspath(path))


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
