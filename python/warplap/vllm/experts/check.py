"""Tables side by side: a folder comes in; for each of its tables the default, the shipped one and ours go out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

from ...tuner.modes import set_mode
from . import fused, journal, space
from .layer import Layer
from .race import Race
from .shapes import Shape
from .tune import checked, facts_of, read_back


def check(
    folder: Path, *, budget: float = 2.0, again: bool = False, measure: bool = True,
    tell: Callable[[dict[str, Any]], None] = lambda event: None,
) -> bool:  # fmt: skip
    """Checks every table of a folder; whether all are in order."""
    paths = sorted(folder.glob("E=*,N=*,device_name=*.json"))
    if not paths:
        raise ValueError(f"{folder}: holds no table, expected E=…,N=…,device_name=….json as warplap vllm tune writes")
    fine = True
    for path in paths:
        code, said = checked(path)
        report: dict[str, Any] = {"event": "table", "table": path.name, "said": said, "right": code == 0}
        record = journal.read(folder / f"warplap-{path.name}")
        if not code and isinstance(record, dict):
            report |= _compared(path, record, budget, again, measure)
        elif not code:
            report["why_not_measured"] = f"warplap-{path.name} is not there: nobody knows the hidden size it is for"
        fine = fine and report["right"]
        tell(report)
    return fine


def _compared(path: Path, record: dict[str, Any], budget: float, again: bool, measure: bool) -> dict[str, Any]:
    """The rows of a table: measured here, or as they were when the table was made."""
    shape = Shape.of(record["facts"]["shape"])
    kept = [{**row, "measured": False} for row in record["rows"]]
    if not measure:
        return {"rows": kept, "why_not_measured": "as asked"}
    try:
        device = fused.Device.here()
    except fused.NotHere as why:
        return {"rows": kept, "why_not_measured": str(why)}
    table = read_back(path, shape)
    if record["facts"]["device"] != device.name:
        return {"rows": kept, "why_not_measured": f"it is for {record['facts']['device']}, this is {device.name}"}
    changed = [n for n, v in facts_of(shape, device).items() if record["facts"].get(n) != v]
    layer = Layer(shape, device.torch)
    rows = []
    with set_mode("tune"):
        for tokens in sorted(table):
            rows.append(_row(Race(layer, device, tokens, budget=budget, again=again), table[tokens], budget))
    return {"rows": rows, "changed": changed}


def _row(race: Race, config: dict[str, Any], budget: float) -> dict[str, Any]:
    """One row's default, shipped and own config, raced."""
    ours = space.whole(config)
    said = {"default": race.default, "shipped": race.shipped, "ours": ours}
    there = {word: c for word, c in said.items() if c is not None}
    distinct = list({space.key(c): c for c in there.values()}.values())
    _, ties = race.race("check", distinct, budget)
    share = 1.0 / race.layer.routings(race.tokens)
    us = {word: race.times[space.key(c)] * share for word, c in there.items() if space.key(c) in race.times}
    report: dict[str, Any] = {"tokens": race.tokens, "config": ours, "us": us.get("ours"), "measured": True}
    report |= {"default_us": us.get("default"), "shipped_us": us.get("shipped"), "grade": race.grade}
    if ours is not None and space.key(ours) in race.refused:
        report["why"] = race.refused[space.key(ours)]
    return report
