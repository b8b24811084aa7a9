"""The Ray engine of ``warplap fleet tune``: job lines come in on stdin, event lines go out on stdout.

A probe of every node tells which class of devices it has. A batch of jobs of one class is one Ray task, pinned to the
nodes of that class; it runs ``warplap fleet work`` as its child, which compares its own device once more. Ray repeats a
task whose node or worker is gone; a job that ends its child is tried again alone, and given up after its tries. Tasks
take text and give text.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

import ray

TRIES = 3
BATCH_SECONDS = 45.0
#: Ray's own repetitions of a task whose node or worker is gone.
RETRIES = 3
#: Bytes of a line.
MOST_LINE = 1 << 22

Line = dict[str, Any]


def program(words: list[str]) -> list[str]:
    """How the program is started on this node: as the driver was told, else by the package that is installed here."""
    if words and shutil.which(words[0]):
        return words
    return [sys.executable, "-m", "warplap", *words[1:]]


def _lines(text: str) -> list[Line]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _probe(words: list[str]) -> str:
    """The devices of the node it runs on, a line each."""
    ended = subprocess.run([*program(words), "fleet", "work", "--probe"], capture_output=True, text=True, timeout=300)
    return ended.stdout if ended.returncode == 0 else json.dumps({"error": ended.stderr.strip()[-500:]})


def _work(words: list[str], device: str, text: str) -> str:
    """Runs one batch in a child; the event lines of those jobs that were begun. The child dies with this worker."""
    node = f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:8]}"
    command = [*program(words), "fleet", "work", "--device", device, "--node", node]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said, errors = child.communicate(text)
    lines = [line for line in said.splitlines() if line.startswith("{") and line.endswith("}")]
    last = {"ended": child.returncode, "errors": errors.strip()[-500:]}
    return "\n".join([*lines, json.dumps(last)])


@dataclass
class Class:
    """A class of devices: its line, and the nodes that have one."""

    line: Line
    nodes: dict[str, str] = field(default_factory=dict)
    cores: float = float("inf")

    def task(self) -> Any:
        """What runs a batch on one of these nodes. The worker is kept: a fresh one takes Ray 1.6 s."""
        needs: Line = {"num_cpus": self.cores} if self.line["kind"] == "cpu" else {"num_cpus": 1, "num_gpus": 1}
        where = {"ray.io/node-id": f"in({','.join(self.nodes)})"}
        return ray.remote(max_calls=0, max_retries=RETRIES)(_work).options(label_selector=where, **needs)


class Driver:
    """Places jobs on the nodes of a cluster."""

    def __init__(self, words: list[str], out: TextIO) -> None:
        self.words, self.out = words, out
        self.known: dict[str, str] = {}
        self.classes: dict[tuple[str, str], Class] = {}
        self.waiting: dict[tuple[str, str], list[Line]] = {}
        self.running: dict[Any, tuple[tuple[str, str], list[Line]]] = {}

    def probe(self) -> None:
        """Looks at the nodes that came since the last time, and forgets those that have gone."""
        alive = {n["NodeID"]: n for n in ray.nodes() if n["Alive"]}
        for one in self.classes.values():
            one.nodes = {node: name for node, name in one.nodes.items() if node in alive}
        new = [node for node in alive if node not in self.known]
        ask = ray.remote(_probe)
        asked = {n: ask.options(num_cpus=0, label_selector={"ray.io/node-id": n}).remote(self.words) for n in new}
        for node, ref in asked.items():
            name = f"{alive[node]['NodeManagerHostname']}/{node[:8]}"
            try:
                found = _lines(ray.get(ref, timeout=300))
            except Exception as error:  # a node that died meanwhile has no devices
                found = [{"error": str(error).splitlines()[-1]}]
            self.known[node] = name
            for line in found:
                if "error" in line:
                    print(f"{name}: {line['error']}", file=sys.stderr)
                    continue
                one = self.classes.setdefault((line["device"], line["soft"]), Class(line))
                one.nodes[node] = name
                one.cores = min(one.cores, max(1.0, alive[node]["Resources"].get("CPU", 1.0)))

    def say(self, job: Line, state: str, why: str = "") -> None:
        """An event of the driver's own."""
        self.tell({"id": job["id"], "state": state, "node": "", "attempt": job.get("attempt", 1), "why": why})

    def tell(self, event: Line) -> None:
        self.out.write(json.dumps(event) + "\n")
        self.out.flush()

    def take(self, lines: Iterator[str]) -> None:
        """Reads the jobs; one for a class that nobody has is given up."""
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                job = json.loads(line[:MOST_LINE])
                class_of = (str(job["device"]), str(job["soft"]))
                job["attempt"], job["id"] = int(job.get("attempt", 1)), str(job["id"])
            except (ValueError, KeyError, TypeError) as error:
                self.say({"id": f"line-{number}"}, "failed", f"not a job line: {error}")
                continue
            if class_of in self.classes:
                self.waiting.setdefault(class_of, []).append(job)
            else:
                self.say(job, "failed", f"no node of the cluster has {class_of[0]} {class_of[1]}")

    def submit(self) -> None:
        """Hands over what waits, in batches; a job that ended a child goes alone."""
        for of, jobs in self.waiting.items():
            one = self.classes[of]
            if not jobs or not one.nodes:
                continue
            takes = [float(job["budget"]) * 1.2 + 0.2 for job in jobs]
            most = min(BATCH_SECONDS, sum(takes) / len(one.nodes))
            batch: list[Line] = []
            room = most
            for job, seconds in zip(jobs, takes):
                if batch and (seconds > room or job["attempt"] > 1 or batch[-1]["attempt"] > 1):
                    self.start(of, batch)
                    batch, room = [], most
                batch.append(job)
                room -= seconds
            self.start(of, batch)
            self.waiting[of] = []

    def start(self, of: tuple[str, str], batch: list[Line]) -> None:
        one = self.classes[of]
        text = "".join(json.dumps(job) + "\n" for job in batch)
        device = "cpu" if one.line["kind"] == "cpu" else "cuda:0"  # Ray shows a task its own card alone
        self.running[one.task().remote(self.words, device, text)] = (of, batch)

    def again(self, of: tuple[str, str], job: Line, why: str) -> None:
        """One more try, or none."""
        if job["attempt"] >= TRIES:
            self.say(job, "failed", f"{why}; tried {job['attempt']} times")
            return
        self.say(job, "lost", why)
        self.waiting.setdefault(of, []).append({**job, "attempt": job["attempt"] + 1})

    def settle(self, of: tuple[str, str], batch: list[Line], ref: Any) -> None:
        """What became of a batch: its events are told, and what it did not get to waits again."""
        try:
            events = _lines(ray.get(ref))
        except Exception as error:  # its node or worker is gone, more often than Ray repeats it
            for job in batch:
                self.again(of, job, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"[:500])
            return
        end = events.pop()
        ended = {event["id"] for event in events if event["state"] in ("done", "failed", "refused")}
        for event in events:
            self.tell(event)
        left = [job for job in batch if job["id"] not in ended]
        begun = {event["id"] for event in events if event["state"] == "begun"}
        for job in left:
            if job["id"] in begun or not begun and job is left[0]:
                self.again(of, job, f"the worker ended in the middle of it (exit {end['ended']}) {end['errors']}".strip())
            else:
                self.waiting.setdefault(of, []).append(job)

    def run(self, lines: Iterator[str]) -> None:
        self.take(lines)
        while self.running or any(self.waiting.values()):
            self.submit()
            ready, _ = ray.wait(list(self.running), num_returns=1, timeout=5.0) if self.running else ([], [])
            for ref in ready:
                self.settle(*self.running.pop(ref), ref)
            if not ready:
                self.probe()


def check(address: str | None) -> None:
    """Whoever reaches Ray's ports runs code on every node: beyond this machine that needs a token."""
    if address in (None, "", "local", "auto") or os.environ.get("RAY_AUTH_MODE") == "token":
        return
    host = str(address).removeprefix("ray://").rsplit(":", 1)[0].strip("[]")
    try:
        near = all(ipaddress.ip_address(a[4][0]).is_loopback for a in socket.getaddrinfo(host, None))
    except (OSError, ValueError):
        near = False
    if not near:
        said = f"--address {address} is not this machine, and whoever reaches Ray's ports runs code there"
        sys.exit(f"{said}: expected RAY_AUTH_MODE=token and a token (ray get-auth-token --generate)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m warplap.fleet.ray", description=__doc__)
    parser.add_argument("--address", help="HOST:PORT of the cluster (default: $RAY_ADDRESS, else this machine alone)")
    parser.add_argument("--probe", action="store_true", help="only say which devices there are")
    parser.add_argument("program", nargs="*", help="how the program warplap is started")
    given = parser.parse_args()
    address = given.address or os.environ.get("RAY_ADDRESS")
    check(address)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray and its workers may print; stdout is for events alone
    mine: Line = {} if address else {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **mine)
    driver = Driver(given.program or [os.environ.get("WARPLAP_PROGRAM", "warplap")], out)
    driver.probe()
    if given.probe:
        for one in driver.classes.values():
            for name in one.nodes.values():
                driver.tell({**one.line, "node": name})
        return
    driver.run(iter(sys.stdin))


if __name__ == "__main__":
    main()
