"""Lanes of a record: what every choice took when the graph was raced, here or by another process."""

from __future__ import annotations

from typing import Any

from ..explain import Contestant


def name_of(candidate: dict[str, Any]) -> str:
    """What a reader calls a candidate of a record."""
    return " + ".join(str(candidate.get("config", {}).get("covers", "")).split()) or str(candidate["variant"])


def contestants(result: dict[str, Any], times: int | None) -> list[Contestant]:
    """The lanes of a record whose trials are of so many runs in a row. Where nobody knows how many, as of a GPU's, only
    times the best are told."""
    made = []
    for trial in result["edition"]["trials"]:
        kinds = tuple(str(trial.get("config", {}).get("covers", "")).split())
        contestant = Contestant(name_of(trial), kinds)
        rejected = trial.get("rejected") or {}
        measured = trial.get("measured") or rejected.get("measurement")
        if measured is not None:
            contestant.us = measured["median_us"] / (times or 1)
        else:
            reason = str(rejected.get("reason", "")).partition("\n")[0][:160]
            contestant.why = ": ".join(filter(None, (rejected.get("why", ""), reason)))
        made.append(contestant)
    best = min((contestant.us for contestant in made if contestant.us), default=None)
    if times is None:
        for contestant in made:
            contestant.times, contestant.us = contestant.behind(best), None
    return with_ties(made, result)


def with_ties(contestants: list[Contestant], result: dict[str, Any] | None) -> list[Contestant]:
    """The lanes, those marked that could not be told from the winner."""
    verdict = {} if result is None else result["edition"]["verdict"]
    same = {name_of(candidate) for candidate in verdict.get("ties", ())}
    for contestant in contestants:
        contestant.is_tie = contestant.name in same
    return contestants
