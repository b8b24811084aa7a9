"""The jobs of an engine: lines come in; batches for classes of devices go out, and events that say what became of them.

A job that ended its worker is tried again alone, and given up after its tries.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TextIO

TRIES = 3
BATCH_SECONDS = 45.0

Line = dict[str, Any]


@dataclass
class Class:
    """A class of devices: how many of them each node has, and the jobs that wait for one."""

    name: str
    kind: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    cores: float = float("inf")
    waiting: list[Line] = field(default_factory=list)
    seen: float = field(default_factory=time.monotonic)

    def devices(self) -> int:
        return sum(self.nodes.values())

    def batch(self) -> list[Line]:
        """The next jobs: some seconds of work, so that every device gets its share. One that was lost goes alone."""
        takes = [job["budget"] * 1.2 + 0.2 for job in self.waiting]
        room = min(BATCH_SECONDS, sum(takes) / max(1, self.devices())) - takes[0]
        count = 1
        while count < len(takes) and takes[count] <= room and self.waiting[count]["attempt"] == 1:
            room -= takes[count]
            count += 1
        if self.waiting[0]["attempt"] > 1:
            count = 1
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        return batch


class Jobs:
    """All jobs, by class."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.classes: dict[tuple[str, str], Class] = {}

    def class_of(self, line: Line) -> Class:
        key = (str(line["device"]), str(line["soft"]))
        return self.classes.setdefault(key, Class(" ".join(key)))

    def take(self, lines: Iterable[str]) -> None:
        """Reads job lines."""
        for number, line in enumerate(filter(str.strip, lines), 1):
            try:
                job = json.loads(line)
                checked = {"id": str(job["id"]), "attempt": int(job.get("attempt", 1)), "budget": float(job["budget"])}
                self.class_of(job).waiting.append({**job, **checked})
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.say({"id": f"line-{number}"}, "failed", f"this is no job line: {error!r}")

    def tell(self, line: Line) -> None:
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def say(self, job: Line, state: str, why: str) -> None:
        self.tell({"id": job["id"], "state": state, "node": "", "attempt": job.get("attempt", 1), "why": why})

    def again(self, of: Class, job: Line, why: str) -> None:
        """One more try, or none."""
        if job["attempt"] >= TRIES:
            self.say(job, "failed", f"{why}; tried {job['attempt']} times")
        else:
            self.say(job, "lost", why)
            of.waiting.append({**job, "attempt": job["attempt"] + 1})

    def ended(self, of: Class, batch: list[Line], lines: list[Line]) -> None:
        """What became of a batch, from its worker's lines; the last one says how the worker ended."""
        *events, end = lines
        died = f"the worker ended in the middle of it (exit {end['code']}) {end['errors']}".strip()
        refused = {event["id"]: event["why"] for event in events if event["state"] == "refused"}
        last = {event["id"] for event in events if event["state"] in ("done", "failed")}
        begun = {event["id"] for event in events if event["state"] == "begun"}
        for event in events:
            if event["state"] != "refused":
                self.tell(event)
        left = [job for job in batch if job["id"] not in last]
        for job in left:
            if job["id"] in refused:
                self.again(of, job, refused[job["id"]])
            elif job["id"] in begun or (job is left[0] and not last | begun | refused.keys()):
                self.again(of, job, died)
            else:
                of.waiting.append(job)

    def give_up(self, patience: float) -> None:
        """Jobs of a class that no node has had for some seconds."""
        for one in self.classes.values():
            if one.nodes:
                one.seen = time.monotonic()
            elif time.monotonic() - one.seen > patience:
                for job in one.waiting:
                    self.say(job, "failed", f"no node has had a device of {one.name} for {patience:g} s")
                one.waiting = []
