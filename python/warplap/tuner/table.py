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


def shown_us(measured: dict[str, Any], verdict: dict[str, Any]) -> float:
    """A candidate's time as it compares with the winner's: the winner's times its gap."""
    behind = measured.get("behind")
    if behind is None or measured.get("cost"):
        return measured["median_us"]
    return verdict["median_us"] * (1.0 + behind["by"])


def spread_text(row: dict[str, Any]) -> str:
    """Half the width of the 95 % interval, as a share: of the winner's time, of everyone else's gap to it."""
    spread = row["plus_minus"]
    return "" if spread is None else f"± {100 * spread:.1f} %"


def sure_text(verdict: dict[str, Any]) -> str:
    """How sure a verdict is, in words; that the samples do not say, where they carry no confidence."""
    if not verdict["confidence"]:
        return "the samples do not say how surely"
    return f"{int(100 * verdict['confidence'] + 1e-6)} % sure to be within {100 * verdict['eps']:.0f} % of the best"


def won_text(verdict: dict[str, Any]) -> str:
    """Why a winner won that others may be as fast as; nothing where it was the fastest."""
    return _WON_BY.get(verdict.get("won_by", "time"), "")


_WON_BY = {
    "incumbent": "it was the winner before, and nobody is surely 2 % faster",
    "error": "a tie, won by the lower error",
    "workspace": "a tie, won by the smaller workspace",
    "priority": "a tie, won by priority",
    "name": "a tie, won by name",
    "call": "the fastest as a program calls it, which its kernel alone is not",
}

LEGEND = (
    "times: the winner's own, the others' by their gap to it; ±: half the 95 % interval of either; "
    "clean: decided, ± at most 5 %; noisy: ± above 5 %; contended: other work ran beside; "
    "capped: the budget ended first. The next tune goes on with all but clean"
)


class Table:
    """Rows as dictionaries, in the order that was decided: ``variant, config, time_us, low_us, high_us, plus_minus,
    gflops, gbps, roofline, behind, outcome``. Times are the winner's own and the others' by their gap to it; ``behind`` is
    None of one that ran in no rounds that tell, whose time is of another moment."""

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
        head = ["variant", "config", "time", "±", "rate", "roofline", "behind", "outcome"]
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


def of_edition(result: dict[str, Any], every_config: bool) -> Table:
    """The table of what was raced for one key."""
    edition, verdict = result["edition"], result["edition"]["verdict"]
    work, floor, best = edition["work"], edition.get("floor_us"), verdict["median_us"]
    rows = [_row(trial, work, floor, best, verdict["winner"]) for trial in edition["trials"]]
    last = float("inf")
    rows.sort(key=lambda r: (r["outcome"] != "winner", r["behind"] is None, r["behind"] or 0.0, r["time_us"] or last))
    ties = [(t["variant"], _config(t["config"])) for t in verdict["ties"]]
    for row in rows:
        if row["outcome"] == "raced" and ((row["variant"], row["config"]) in ties or row["behind"] == 1.0):
            row["outcome"] = "tie"
    if not every_config:
        seen: set[str] = set()
        rows = [r for r in rows if not (r["variant"] in seen or seen.add(r["variant"]))]  # type: ignore[func-returns-value]
    tried = {r["variant"] for r in rows}
    for skipped in edition["skipped"]:
        if skipped["variant"] not in tried:
            tried.add(skipped["variant"])
            rows.append(_empty(skipped["variant"], f"aside: {skipped['reason']}"))
    title = result["problem"] + (f" (measured at {result['measured_at']})" if result.get("measured_at") else "")
    note = f"{verdict['grade']}, {verdict['rounds']} rounds, {verdict['launches']} launches, {edition['seconds']:.1f} s"
    return Table(title, rows, f"{note}\n{LEGEND}")


def _config(config: dict[str, Any]) -> str:
    return ",".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in config.items())


def _empty(variant: str, outcome: str) -> dict[str, Any]:
    blank = ("time_us", "low_us", "high_us", "plus_minus", "gflops", "gbps", "roofline", "behind")
    return {"variant": variant, "config": "", **dict.fromkeys(blank), "outcome": outcome}


def _row(
    trial: dict[str, Any], work: dict[str, float], floor: float | None, best: float, winner: dict[str, Any]
) -> dict:
    config = _config(trial["config"])
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
        us, (low, high), behind = measured["median_us"], measured["ci_us"], measured.get("behind")
        # Who ran in no rounds that tell has a time of another moment: no ratio follows from it.
        ratio = 1.0 if outcome == "winner" else None
        spread = (high - low) / us / 2 if us else None
        if behind is not None and outcome != "winner":
            # Medians of different heats are of different moods of the machine: only gaps to the winner compare.
            ratio, spread = 1.0 + behind["by"], (behind["ci"][1] - behind["ci"][0]) / 2
            low, high = (best * (1.0 + end) for end in behind["ci"])
            high = max(high, best * ratio)
        if not measured.get("cost"):
            us = max(us, best) if ratio is None else best * ratio
            high = max(high, us)
        row |= {"time_us": us, "low_us": low, "high_us": high, "plus_minus": spread, "behind": ratio}
        row["gflops"] = work["flops"] / us / 1e3 if work["flops"] else None
        row["gbps"] = work["bytes"] / us / 1e3 if work["bytes"] else None
        row["roofline"] = floor / us if floor else None
    return row
