"""A choice between callables that answer the same call on a CUDA device: raced once per key, kept, and shown.

The first one is what torch would do by itself, and the one to beat: who is not clearly faster does not replace it.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from . import _callables, _warplap

# By how much another one must be faster than the first.
_CLEARLY = 1.02


class Choice:
    """One operation. ``ways`` gives, for a call's arguments, who can answer it, the first being torch's own way;
    ``key_of`` what a choice is kept by."""

    def __init__(
        self,
        op: str,
        ways: Callable[..., dict[str, Callable[..., Any]]],
        key_of: Callable[..., str],
    ) -> None:
        self.op, self.ways, self.key_of = op, ways, key_of
        self._chosen: dict[tuple[str, str], Callable[..., Any]] = {}

    def _contest(self, args: tuple[Any, ...], **more: Any) -> tuple[str, dict[str, Any] | None]:
        """Who answers a call, and what is known about its key."""
        entered = self.ways(*args)
        names = list(entered)
        candidates: list[tuple[str, dict[str, Any], str]] = [(n, {}, f"{n} {torch.__version__}") for n in names]
        winner, found = _callables.compete(
            self.op, self.key_of(*args), candidates, list(entered.values()), entered[names[0]], args, {}, **more
        )
        ahead = found is None or _beats(found, names[winner], names[0])
        return names[winner] if ahead else names[0], found

    def choose(self, *args: Any) -> tuple[Callable[..., Any], bool]:
        """The way of choice for a call, and whether it is settled; while a stream is captured, torch's own unless the
        store knows better."""
        name = (_warplap.mode() + _warplap.store_place()[0], self.key_of(*args))
        known = self._chosen.get(name)
        if known is not None:
            return known, True
        winner, found = self._contest(args)
        way = self.ways(*args)[winner]
        if found is not None:
            self._chosen[name] = way
        return way, found is not None

    def known(self, args: tuple[Any, ...], **how: Any) -> dict[str, Any]:
        """What is known about a call's key, after a race where ``how`` lets it."""
        winner, found = self._contest(args, **how)
        if found is None:
            raise ValueError(f"{self.op}: {self.key_of(*args)} was not raced yet")
        verdict = found["edition"]["verdict"]
        if verdict["winner"]["variant"] != winner:  # one that is not clearly ahead of torch's own way
            verdict["ties"] = [*verdict["ties"], verdict["winner"]]
            trial = next(t for t in found["edition"]["trials"] if t["variant"] == winner)
            timed = trial.get("measured") or trial["rejected"]["measurement"]
            verdict |= {"winner": {k: trial[k] for k in ("variant", "config", "source")}, "ci_us": timed["ci_us"]}
            verdict |= {"median_us": timed["median_us"], "margin": None, "runner_up": None}
        return found

    def explained(self, args: tuple[Any, ...]) -> dict[str, Any]:
        """What is known, and who may answer, as an explanation has it."""
        variants = [{"variant": n, "fits": True, "why": "", "configs": 1, "library": True} for n in self.ways(*args)]
        blank = {"problem": f"{self.op}:{self.key_of(*args)}", "newcomers": [], "variants": variants}
        try:
            found = self.known(args, measure=False)
        except ValueError:
            miss = "miss: the store does not know the key"
            return {**blank, "key": blank["problem"], "how": None, "matched": miss, "edition": None}
        exact = "exact: measured on this device under its present versions"
        return {**blank, **found, "how": "stored", "matched": exact}


def _beats(found: dict[str, Any], name: str, first: str) -> bool:
    """Whether a winner is clearly faster than the first."""
    if name == first:
        return True
    verdict = found["edition"]["verdict"]
    if any(tie["variant"] == first for tie in verdict["ties"]):
        return False
    timed = {
        t["variant"]: t.get("measured") or (t.get("rejected") or {}).get("measurement")
        for t in found["edition"]["trials"]
    }
    own, other = timed.get(first), timed.get(name)
    return own is None or other is None or own["median_us"] > _CLEARLY * other["median_us"]
