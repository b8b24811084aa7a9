"""Tuning ahead, benchmarking side by side, and explaining a choice."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, Callable, Iterable

from .. import _warplap
from ..operator.public import is_tensor
from .problem import Asked, asked
from .table import Table, of_edition, sure_text, time_text, won_text

log = logging.getLogger("warplap")


class Tuned:
    """What is known about a key: who won, by how much, how surely."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.problem: str = result["problem"]
        self.key: str = result["key"]
        self.from_store: bool = result["from_store"]
        self.record: dict[str, Any] = result["edition"]
        verdict = self.record["verdict"]
        self.variant: str = verdict["winner"]["variant"]
        self.config: dict[str, Any] = verdict["winner"]["config"]
        self.time_us: float = verdict["median_us"]
        self.interval_us: tuple[float, float] = tuple(verdict["ci_us"])
        self.grade: str = verdict["grade"]
        self.measured_at: str | None = result.get("measured_at")
        """The size that was measured, where another one of the key was: times are of that one."""
        self.note: str | None = result.get("note")
        """What became of a provisional record that was there."""
        self._result = result

    def table(self, every_config: bool = False) -> Table:
        """Everyone who raced."""
        return of_edition(self._result, every_config)

    def __repr__(self) -> str:
        settings = ",".join(f"{k}={v}" for k, v in self.config.items())
        origin = "from the store" if self.from_store else f"raced in {self.record['seconds']:.1f} s"
        origin += f"; {self.note}" if self.note else ""
        who = f"{self.variant}[{settings}]" if settings else self.variant
        at = f" at {self.measured_at}" if self.measured_at else ""
        return f"{self.problem}: {who} in {time_text(self.time_us)}{at} ({self.grade}, {origin})"


class _Bar:
    """Progress: tqdm's bar where it is installed, plain lines where it is not, nothing where nobody looks."""

    def __init__(self, total: int, show: bool | None) -> None:
        self._show = sys.stderr.isatty() if show is None else show
        self._bar: Any = None
        self._done, self._total, self._tried = 0, total, 0
        if self._show:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="key")

    def tell(self, event: str, what: Any, number: Any) -> None:
        """Hears an event of the race."""
        if event == "started":
            self._tried = 0
        elif event == "tried":
            self._tried += 1
        if self._bar is None:
            return
        if event == "waiting":
            self._bar.set_postfix_str(f"waiting for {what}")
        elif event in ("started", "tried", "leader"):
            leader = f" {what} {time_text(number)}" if event == "leader" else ""
            self._bar.set_postfix_str(f"{self._tried} tried{leader}")

    def end(self, tuned: Tuned) -> None:
        """One key is done."""
        self._done += 1
        log.info("%s", tuned)
        if self._bar is not None:
            self._bar.update(1)
            self._bar.write(str(tuned), file=sys.stderr)
        elif self._show:
            print(f"[{self._done}/{self._total}] {tuned}", file=sys.stderr)

    def close(self) -> None:
        """The end."""
        if self._bar is not None:
            self._bar.close()


def _asked(problem: Any, device: str | None) -> Asked:
    if isinstance(problem, str):
        return asked(problem, device=device)
    op, *args = problem
    named = args.pop() if args and isinstance(args[-1], dict) else {}
    return asked(op, *args, device=device, **named)


def tune(
    problems: str | Iterable[Any],
    *,
    budget: float | None = None,
    again: bool = False,
    progress: bool | None = None,
    device: str | None = None,
) -> list[Tuned]:
    """Tunes problems ahead of time; what the store knows is not measured again unless ``again``, and what it knows from
    a noisy, contended or capped race is gone on with.

    A problem is a text (``"gemm:m=512,n=512,k=512,dtype=f32"``) or a tuple of an operator and its arguments
    (``(warplap.matmul, a, b)``; a dictionary at its end holds keyword arguments). ``budget`` is in seconds for each
    key. Arguments on a GPU are tuned there; ``device`` ("cpu", "cuda", "cuda:1") says where texts are. Ctrl-C keeps
    what is done.
    """
    every = [problems] if isinstance(problems, str) else list(problems)
    wanted = [_asked(p, device) for p in every]
    bar, done = _Bar(len(wanted), progress), []
    try:
        for one in wanted:
            report = _warplap.tune(one.text, budget=budget, again=again, tell=bar.tell, gpu=one.gpu)
            result = Tuned(json.loads(report))
            bar.end(result)
            done.append(result)
    finally:
        bar.close()
    return done


def benchmark(
    op: str | Callable[..., Any],
    *args: Any,
    budget: float | None = None,
    every_config: bool = False,
    progress: bool | None = False,
    device: str | None = None,
    **kwargs: Any,
) -> Table:
    """Races every variant of an operator on these arguments and gives the table: time, interval, rate, who was
    rejected and why. Nothing is kept.

    >>> benchmark(warplap.matmul, a, b)
    >>> benchmark("gemm:m=512,n=512,k=512,dtype=f32", device="cuda")
    """
    one = asked(op, *args, device=device, **kwargs)
    bar = _Bar(1, progress)
    try:
        result = json.loads(_warplap.bench(one.text, budget=budget, tell=bar.tell, gpu=one.gpu))
    finally:
        bar.close()
    return of_edition(result, every_config)


class Explanation:
    """Why a variant runs a problem. ``str()`` of it is for people; ``record`` has everything."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.problem: str = result["problem"]
        self.key: str = result["key"]
        self.how: str | None = result["how"]
        self.matched: str = result["matched"]
        self.record: dict[str, Any] | None = result["edition"]
        self.newcomers: list[str] = result["newcomers"]
        self.variants: list[dict[str, Any]] = result["variants"]
        self.strided_call: str | None = result.get("gaps")
        self.measured_at: str | None = result["measured_at"]
        """The size that was measured, where another one of the key was: times are of that one."""
        self.proved: bool = result["proved"]
        """Whether the winner was raced or proved on this machine as it is."""
        self._result = result

    @property
    def answers(self) -> str | None:
        """Who runs a call in the present mode; None where a race comes first."""
        races = self._result["mode"] == "tune" and (self.how != "stored" or self.newcomers)
        return None if races else self._answers()["variant"]

    def _answers(self) -> dict[str, Any]:
        """Who runs a call without a race, and why it is that one."""
        tunes = self._result["mode"] in ("tune", "background") and self.how == "stored"
        if tunes and self.record is not None and (self.proved or self._result["mode"] == "tune"):
            first = "" if self.proved else "it is proved at its first use"
            return {**self.record["verdict"]["winner"], "how": first}
        answers: dict[str, Any] = self._result["answers"]
        return answers

    @property
    def variant(self) -> str | None:
        """Who won, where the key was raced."""
        return self.record["verdict"]["winner"]["variant"] if self.record else None

    def table(self, every_config: bool = False) -> Table:
        """Everyone who raced."""
        if self.record is None:
            raise ValueError(f"{self.problem} was not raced yet; call warplap.tune(...) first")
        return of_edition(self._result, every_config)

    def __repr__(self) -> str:
        lines = [self.problem, f"  key      {self.key}", f"  store    {self.matched}"]
        if self.answers is None:
            lines.append("  answers  nobody yet: the first call races")
        else:
            why = self._answers()["how"].removeprefix("default: ").removeprefix("stored")
            lines.append(f"  answers  {self.answers}" + (f" ({why})" if why else ""))
        if self.record is not None:
            verdict = self.record["verdict"]
            grade = verdict["grade"] + ("" if verdict["grade"] == "clean" else " (the next tune goes on with it)")
            spread = f"± {50 * (verdict['ci_us'][1] - verdict['ci_us'][0]) / verdict['median_us']:.1f} %"
            time = f"{time_text(verdict['median_us'])} {spread}"
            time += f" at {self.measured_at}, not at the size asked for" if self.measured_at else ""
            lines.append(f"  winner   {self.variant}, {time}, {grade}, {sure_text(verdict)}")
            if verdict["margin"] is not None and verdict["runner_up"] is not None:
                tie = verdict["runner_up"] in verdict["ties"]
                behind = "a tie" if tie else f"{100 * max(0.0, verdict['margin']):.1f} % behind"
                lines.append(f"  second   {verdict['runner_up']['variant']}, {behind}")
            if verdict["ties"]:
                why = f" ({won_text(verdict)})" if won_text(verdict) else ""
                lines.append(f"  ties     {', '.join(t['variant'] for t in verdict['ties'])}{why}")
            last_race = self.record.get("last_heat")
            if last_race is not None:
                gap, other = last_race["gap"], last_race["other"]["variant"]
                slower = f"{other} takes {100 * gap:.1f} % longer"
                longer = slower if gap >= 0 else f"{other} cannot be told from it there"
                lines.append(f"  called   {time_text(last_race['call_us'])} a call as a program makes it; {longer}")
        if self.strided_call:
            lines.append(f"  gaps     {self.strided_call}")
        if self.newcomers:
            lines.append(f"  new      {', '.join(self.newcomers)} (will race against the winner)")
        for v in self.variants:
            if not v["fits"]:
                lines.append(f"  aside    {v['variant']}: {v['why']}")
        return "\n".join(lines)


def explain(op: str | Callable[..., Any], *args: Any, device: str | None = None, **kwargs: Any) -> Explanation:
    """What is known about the problem of a call, and who would run it. Measures nothing."""
    one = asked(op, *args, device=device, **kwargs)
    result = json.loads(_warplap.explain(one.text, gpu=one.gpu))
    if args and one.text.startswith("attention:") and is_tensor(args[0]):
        from ..ops.attention import strided

        result["gaps"] = strided.explained(*args, **kwargs)
    return Explanation(result)
