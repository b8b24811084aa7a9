"""Lanes of a record: what every choice took when the graph was raced, here or by another process."""

from __future__ import annotations

from typing import Any

from .explain import Lane


def name_of(candidate: dict[str, Any]) -> str:
    """What a reader calls a candidate of a record."""
    return " + ".join(str(candidate.get("config", {}).get("covers", "")).split()) or str(candidate["variant"])


def lanes(found: dict[str, Any], times: int | None) -> list[Lane]:
    """The lanes of a record whose trials are of so many runs in a row. Where nobody knows how many, as of a GPU's, only
    times the best are told."""
    made = []
    for trial in found["edition"]["trials"]:
        kinds = tuple(str(trial.get("config", {}).get("covers", "")).split())
        lane = Lane(name_of(trial), kinds)
        rejected = trial.get("rejected") or {}
        measured = trial.get("measured") or rejected.get("measurement")
        if measured is not None:
            lane.us = measured["median_us"] / (times or 1)
        else:
            reason = str(rejected.get("reason", "")).partition("\n")[0][:160]
            lane.why = ": ".join(filter(None, (rejected.get("why", ""), reason)))
        made.append(lane)
    best = min((lane.us for lane in made if lane.us), default=None)
    if times is None:
        for lane in made:
            lane.times, lane.us = lane.behind(best), None
    return with_ties(made, found)


def with_ties(lanes: list[Lane], found: dict[str, Any] | None) -> list[Lane]:
    """The lanes, those marked that could not be told from the winner."""
    verdict = {} if found is None else found["edition"]["verdict"]
    same = {name_of(candidate) for candidate in verdict.get("ties", ())}
    for lane in lanes:
        lane.is_tie = lane.name in same
    return lanes
