"""The Ray engine of ``warplap fleet tune``: job lines come in on stdin, event lines go out on stdout.

A probe of every node tells which classes of devices it has. A batch of jobs of one class is one Ray task, pinned to the
nodes of that class; it runs ``warplap fleet work`` as its child, which compares its own device once more. Ray repeats a
task whose node or worker is gone. Tasks take text and give text.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, TextIO

from .address import check
from .jobs import Class, Jobs, Line

try:
    import ray
except ModuleNotFoundError:
    sys.exit(f"{sys.executable} has no package ray: pip install 'warplap[ray]', here and on every node")

RETRIES = 2  #: Ray's own repetitions of a task whose node or worker is gone.
#: Seconds that a probe may take, on a busy node too; between two looks for new nodes; between two looks at who listens.
PROBE, LOOK, TURN = 120.0, 5.0, 0.5
#: Seconds that a batch may take, beside twenty times those that are expected: somebody else may hold the card.
SLACK = 600.0


def work(words: list[str], store: str | None, more: list[str], jobs: str, limit: float) -> str:
    """Runs ``fleet work`` on a node: its lines, then one that says how it ended. It dies with its Ray worker."""
    words = words if shutil.which(words[0]) else [sys.executable, "-m", "warplap", *words[1:]]
    node = f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:8]}"
    command = [*words, "fleet", "work", "--node", node, *more]
    named = {**os.environ, "WARPLAP_STORE": store} if store else None
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, env=named, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        said, errors = child.communicate(jobs, timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        said, errors = child.communicate()
        errors += f"\nit was not over after {limit:.0f} s"
    whole = [line for line in said.splitlines() if line.startswith("{") and line.endswith("}")]
    return "\n".join([*whole, json.dumps({"code": child.returncode, "errors": errors.strip()[-500:]})])


def result(ref: Any) -> list[Line]:
    return [json.loads(line) for line in ray.get(ref, timeout=PROBE).splitlines()]


class Batch(NamedTuple):
    """Jobs that were handed over, and the nodes that may have them."""

    of: Class
    jobs: list[Line]
    nodes: set[str]


class Driver:
    """Places jobs on the nodes of a cluster."""

    def __init__(self, words: list[str], out: TextIO) -> None:
        self.words, self.out, self.jobs = words, out, Jobs(out)
        self.alive, self.known = set[str](), set[str]()
        self.asked: dict[Any, Line] = {}
        self.running: dict[Any, Batch] = {}
        self.looked = 0.0

    def look(self) -> None:
        """Asks nodes that came since the last time for their devices, and forgets those that have gone."""
        self.looked = time.monotonic()
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self.alive = set(alive)
        for one in self.jobs.classes.values():
            one.nodes = {node: count for node, count in one.nodes.items() if node in alive}
        for ref, batch in self.running.items():
            if not batch.nodes & self.alive:
                ray.cancel(ref, force=True)
        for node in self.alive - self.known:
            task = ray.remote(num_cpus=0, max_retries=0, label_selector={"ray.io/node-id": node})(work)
            self.asked[task.remote(self.words, None, ["--probe"], "", PROBE)] = alive[node]
        self.known |= self.alive

    def meet(self, ref: Any) -> list[Line]:
        """Notes the devices of a node that has answered; one that died meanwhile has none."""
        node = self.asked.pop(ref)
        try:
            *outcome, end = result(ref)
        except ray.exceptions.RayError as error:
            outcome, end = [], {"code": None, "errors": str(error)}
        if end["code"] != 0:
            print(f"node {node['NodeManagerHostname']} did not tell its devices: {end['errors']}", file=sys.stderr)
        # A node may keep its cores, or its cards, from Ray.
        outcome = [line for line in outcome if node["Resources"].get("CPU" if line["kind"] == "cpu" else "GPU", 0) >= 1]
        for line in outcome:
            one = self.jobs.class_of(line)
            one.kind, one.cores = line["kind"], min(one.cores, node["Resources"].get("CPU", 0))
            one.nodes[node["NodeID"]] = one.nodes.get(node["NodeID"], 0) + 1
        return outcome

    def meet_all(self) -> Iterable[Line]:
        """The devices of all nodes that answer in time."""
        self.look()
        until = time.monotonic() + PROBE
        while self.asked and (left := until - time.monotonic()) > 0:
            for ref in ray.wait(list(self.asked), timeout=left)[0]:
                yield from self.meet(ref)

    def submit(self) -> None:
        """Hands over a batch for each device, and one more that may follow at once."""
        for one in self.jobs.classes.values():
            out = sum(batch.of is one for batch in self.running.values())
            while one.waiting and one.nodes and out <= one.devices():
                self.start(one, one.batch())
                out += 1

    def start(self, one: Class, jobs: list[Line]) -> None:
        needs: Line = {"num_cpus": one.cores} if one.kind == "cpu" else {"num_cpus": min(1, one.cores), "num_gpus": 1}
        where = {"ray.io/node-id": f"in({','.join(one.nodes)})"}
        # The Ray worker is kept, as a fresh one takes 1.6 s. Ray shows a task its own card alone.
        task = ray.remote(max_calls=0, max_retries=RETRIES, label_selector=where, **needs)(work)
        more = ["--device", "cpu" if one.kind == "cpu" else "cuda:0"]
        text = "".join(json.dumps(job) + "\n" for job in jobs)
        limit = SLACK + 20 * sum(job["budget"] + 1 for job in jobs)
        ref = task.remote(self.words, os.environ.get("WARPLAP_STORE"), more, text, limit)
        self.running[ref] = Batch(one, jobs, set(one.nodes))

    def settle(self, ref: Any) -> None:
        batch = self.running.pop(ref)
        try:
            lines = result(ref)
        except ray.exceptions.RayError as error:  # its workers or nodes went more often than Ray repeats it
            self.look()
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"[:500]
            for job in batch.jobs:
                # Where all its nodes are gone nobody has tried it, and others may come.
                self.jobs.again(batch.of, job, why) if batch.nodes & self.alive else batch.of.waiting.append(job)
            return
        if lines[-1]["errors"]:
            print(lines[-1]["errors"], file=sys.stderr)
        self.jobs.ended(batch.of, batch.jobs, lines)

    def run(self, lines: Iterable[str], patience: float) -> None:
        """Until every job has had its last word, or nobody listens any more."""
        self.jobs.take(lines)
        listener = select.poll()
        listener.register(self.out, 0)
        while not listener.poll(0) and (self.running or any(one.waiting for one in self.jobs.classes.values())):
            self.submit()
            refs = [*self.running, *self.asked]
            for ref in ray.wait(refs, timeout=TURN)[0] if refs else []:
                self.settle(ref) if ref in self.running else self.meet(ref)
            if not refs:
                time.sleep(TURN)
            if time.monotonic() - self.looked > LOOK:
                self.look()
            self.jobs.give_up(patience)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m warplap.fleet.ray", description=__doc__)
    parser.add_argument("--address", help="HOST:PORT of the cluster (default: $RAY_ADDRESS, else this machine alone)")
    parser.add_argument("--probe", action="store_true", help="only say which devices there are")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a node of a class")
    parser.add_argument("program", nargs="*", default=["warplap"], help="how the program warplap is started")
    inputs = parser.parse_args()
    address = inputs.address or os.environ.get("RAY_ADDRESS") or "local"
    check(address)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray and its workers may print; stdout is for events alone
    mine: Line = {"_node_ip_address": "127.0.0.1", "include_dashboard": False} if address == "local" else {}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of our own calls nobody
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **mine)
    except (ConnectionError, RuntimeError) as error:
        sys.exit(f"no Ray cluster answers at {address}: {error}")
    driver = Driver(inputs.program, out)
    for line in driver.meet_all():
        if inputs.probe:
            driver.jobs.tell(line)
    if not inputs.probe:
        driver.run(sys.stdin, inputs.patience)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit("nobody listens any more: what was recorded stays; run it again to go on")
