"""The Ray engine on a real cluster of four nodes on one machine: two of a class with one CPU thread, two with two.

Where Ray is installed about 60 s; ``WARPLAP_FLEET_LONG=1 python/run-tests`` installs it and runs the form with 200 jobs.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_places import LONG, Place, is_alive, program, wait_for

# A cluster listens on the machine's own address, not on loopback. Ray reads this when it is loaded.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray==2.60.0")
from ray.cluster_utils import Cluster  # noqa: E402


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    def node(threads: int) -> dict:
        return {"num_cpus": 2, "env_vars": {"WARPLAP_THREADS": str(threads)}, "object_store_memory": 80 << 20}

    began = time.monotonic()
    cluster = Cluster(initialize_head=True, head_node_args={**node(2), "include_dashboard": False})
    for threads in (2, 1, 1):
        cluster.add_node(**node(threads))
    cluster.wait_for_nodes()
    print(f"four nodes are up after {time.monotonic() - began:.1f} s")
    yield cluster
    cluster.shutdown()


def place(folder: Path, cluster: Cluster, problems: int) -> Place:
    folder.chmod(0o700)
    # Nodes have an environment of their own: what a test sets reaches their workers by a file.
    script = folder / "warplap"
    script.write_text(
        f'#!/bin/sh\nexport TMPDIR={folder} WARPLAP_FLEET_FAULT="$(cat {folder}/fault)"\nexec {program()} "$@"\n'
    )
    script.chmod(0o755)
    engine = ["--engine", "ray", "--address", cluster.address]
    return Place(folder, problems, engine, {"WARPLAP_PROGRAM": str(script)})


def test_jobs_are_done_on_their_class_whoever_dies(tmp_path: Path, cluster: Cluster) -> None:
    here = place(tmp_path, cluster, 100 if LONG else 16)
    jobs = here.jobs()
    assert len({job["device"] for job in jobs.values()}) == 2 and len(jobs) == (200 if LONG else 32)
    poison = sorted(jobs)[0]
    fault = here.fault(poison, slow=150)
    began = time.time()

    first = here.start(fault)
    wait_for("some races", lambda: len(here.races()) >= len(jobs) // 4, 120)
    victim = cluster.list_all_nodes()[-1]
    node_processes = {p for _, _, p, _ in here.races() if is_alive(p)}
    cluster.remove_node(victim, allow_graceful=False)
    killed = time.time()
    wait_for("the end of its worker", lambda: any(not is_alive(p) for p in node_processes), 60)
    gone = [race for race in here.races() if not is_alive(race[2]) and race[2] in node_processes]
    lost = gone[-1][0] if gone else None
    if lost:
        wait_for("the lost job's next try", lambda: any(r[0] == lost and r[3] > killed for r in here.races()), 120)
        again = next(r[3] for r in here.races() if r[0] == lost and r[3] > killed) - killed
        print(f"begun again {again:.1f} s after the node was lost")
        assert again <= (30 if LONG else 60)
    wait_for("more races", lambda: len(here.races()) >= len(jobs) // 2)
    first.kill()
    first.communicate()

    lines, errors, code = here.run(fault)
    total = lines[-1]
    done = {line["id"] for line in lines[:-1] if line["state"] == "done"}
    failed = [line for line in lines[:-1] if line["state"] != "done"]
    assert code == 1 and [line["id"] for line in failed] == [poison], errors
    assert "exit -9" in failed[0]["why"] and failed[0]["attempt"] == 3
    assert total["done"] + total["from_store"] == len(jobs) - 1 and total["failed"] == 1, total
    assert all(device == jobs[job]["device"] for job, device, _, _ in here.races())
    times = Counter(job for job, *_ in here.races())
    died = {mark.name for mark in here.marks.iterdir()}
    more = {job: n for job, n in times.items() if n > 1 + (job in died) and job != poison}
    # Beyond planted deaths only those were begun again that the node and the first driver took with them.
    assert sum(n - 1 - (job in died) for job, n in more.items()) <= 5, more
    print(
        f"{len(jobs)} jobs, {len(died)} died once, {total['done'] + total['from_store']} results "
        f"({len(done)} in the second run), {sum(times.values())} races begun, {time.time() - began:.0f} s in all"
    )
    sum_again = here.run("")[0][-1]
    assert (sum_again["from_store"], sum_again["done"]) == (len(jobs) - 1, 1)


def test_a_worker_that_is_killed_takes_its_child_and_the_lock_with_it(tmp_path: Path, cluster: Cluster) -> None:
    here = place(tmp_path, cluster, 2)
    running = here.start(here.fault(percent=0, slow=60_000))
    wait_for("a race", here.races)
    child = here.races()[0][2]
    worker = int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(worker, signal.SIGKILL)
    took = wait_for("the child's end", lambda: not is_alive(child), 10)
    others = lambda: [r for r in here.races() if r[2] != child]
    free = wait_for("the next holder of the card", others, 60)
    print(f"child gone after {took:.2f} s; next race on the card {free:.2f} s later")
    assert took <= 1.0
    running.kill()
    running.communicate()


@pytest.mark.parametrize("address", ["192.0.2.1:6379", "ray://198.51.100.7:10001"])
def test_an_address_beyond_this_machine_needs_a_token(address: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "RAY_AUTH_MODE"}
    words = [sys.executable, "-m", "warplap.fleet.ray", "--probe", "--address", address]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "RAY_AUTH_MODE=token" in ended.stderr, ended.stderr
    assert json.dumps(address)[1:-1] in ended.stderr
