"""Tables: rows of a benchmark, readable on a console and in a notebook, and a DataFrame where pandas is there."""

from __future__ import annotations

import html
from typing import Any, Iterator


def time_text(us: float | None) -> str:
    """A time in the unit that suits it."""
    if us is None:
        return "–"
    for limit, unit, factor in ((1e3, "µs", 1.0), (1e6, "ms", 1e-3), (float("inf"), "s", 1e-6)):
        if us < limit:
            return f"{us * factor:.3g} {unit}" if us * factor < 100 else f"{us * factor:.0f} {unit}"
    return f"{us} µs"


def spread_text(row: dict[str, Any]) -> str:
    """Half the interval's width as a share of the time."""
    us, low, high = row["time_us"], row["low_us"], row["high_us"]
    return "" if not us or low is None else f"± {50 * (high - low) / us:.0f} %"


class Table:
    """Rows as dictionaries: ``variant, config, time_us, low_us, high_us, gflops, gbps, roofline, behind, outcome``."""

    def __init__(self, title: str, rows: list[dict[str, Any]], note: str = "") -> None:
        self.title, self.rows, self.note = title, rows, note

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self.rows[at]

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``."""
        import pandas

        return pandas.DataFrame(self.rows)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = ["variant", "config", "time", "interval", "rate", "roofline", "behind", "outcome"]
        body = []
        for r in self.rows:
            rate = f"{r['gflops']:.4g} GFLOP/s" if r["gflops"] else (f"{r['gbps']:.4g} GB/s" if r["gbps"] else "")
            body.append(
                [
                    r["variant"],
                    r["config"],
                    time_text(r["time_us"]),
                    spread_text(r),
                    rate,
                    f"{100 * r['roofline']:.0f} %" if r["roofline"] else "",
                    f"{r['behind']:.2f}×" if r["behind"] else "",
                    r["outcome"],
                ]
            )
        return head, body

    def __repr__(self) -> str:
        head, body = self._cells()
        widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
        widths[-1] = 0
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in [head, *body]]
        return "\n".join([self.title, *lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head, body = self._cells()
        cells = lambda row, tag: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row)
        rows = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in body)
        caption, note = html.escape(self.title), html.escape(self.note)
        return f"<table><caption>{caption}</caption><tr>{cells(head, 'th')}</tr>{rows}</table><p>{note}</p>"


def of_edition(found: dict[str, Any], every_config: bool) -> Table:
    """The table of what was raced for one key."""
    edition, verdict = found["edition"], found["edition"]["verdict"]
    work, floor, best = edition["work"], edition.get("floor_us"), verdict["median_us"]
    rows = [_row(trial, work, floor, best, verdict["winner"]) for trial in edition["trials"]]
    # Within what could not be told apart, the winner need not have the lowest median: it stands first all the same.
    rows.sort(key=lambda r: (r["outcome"] != "winner", r["time_us"] is None, r["time_us"] or 0.0))
    if not every_config:
        seen: set[str] = set()
        rows = [r for r in rows if not (r["variant"] in seen or seen.add(r["variant"]))]  # type: ignore[func-returns-value]
    tried = {r["variant"] for r in rows}
    for skipped in edition["skipped"]:
        if skipped["variant"] not in tried:
            tried.add(skipped["variant"])
            rows.append(_empty(skipped["variant"], f"aside: {skipped['reason']}"))
    note = f"{verdict['grade']}, {verdict['rounds']} rounds, {verdict['launches']} launches, {edition['seconds']:.1f} s"
    return Table(found["problem"], rows, note)


def _empty(variant: str, outcome: str) -> dict[str, Any]:
    blank = ("time_us", "low_us", "high_us", "gflops", "gbps", "roofline", "behind")
    return {"variant": variant, "config": "", **dict.fromkeys(blank), "outcome": outcome}


def _row(
    trial: dict[str, Any], work: dict[str, float], floor: float | None, best: float, winner: dict[str, Any]
) -> dict:
    config = ",".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in trial["config"].items())
    measured, rejected = trial.get("measured"), trial.get("rejected")
    outcome = "raced"
    if rejected is not None:
        measured = rejected.get("measurement")
        outcome = rejected["why"].replace("_", " ")
        outcome += f": {rejected['reason']}" if rejected.get("reason") else ""
    if trial["variant"] == winner["variant"] and trial["config"] == winner["config"]:
        outcome = "winner"
    row = {**_empty(trial["variant"], outcome), "config": config}
    if measured is not None:
        us = measured["median_us"]
        row |= {"time_us": us, "low_us": measured["ci_us"][0], "high_us": measured["ci_us"][1], "behind": us / best}
        row["gflops"] = work["flops"] / us / 1e3 if work["flops"] else None
        row["gbps"] = work["bytes"] / us / 1e3 if work["bytes"] else None
        row["roofline"] = floor / us if floor else None
    return row
