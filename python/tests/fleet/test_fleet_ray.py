"""The Ray engine on a real cluster of four nodes on one machine, with a real PostgreSQL as the store they share.

Two nodes are of a class with two CPU threads, two of a class with one; each has a near store of its own. 100 to 140 s on
two busy cores; with ``WARPLAP_FLEET_LONG=1`` it is 200 jobs, and takes 210 s.
"""

from __future__ import annotations

import fcntl
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
from fleet_server import Server

# A cluster listens on the machine's own address, not on loopback. Ray reads this when it is loaded.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster  # noqa: E402

#: Threads of each node's CPU; the first node is the head.
NODES = [2, 1, 2, 1]
#: Everything that is put into the fleet's table of editions, a row each time.
HISTORY = """
create table history (device text, hash text);
create function note() returns trigger language plpgsql security definer as
  $$ begin insert into public.history values (new.device::text, new.hash); return null; end $$;
create trigger history after insert or update on warplap.edition for each row execute function note();
"""


class Four:
    """A cluster of four nodes."""

    def __init__(self) -> None:
        def node(number: int) -> dict:
            mine = {"WARPLAP_THREADS": str(NODES[number]), "WARPLAP_TEST_NODE": str(number)}
            return {"num_cpus": 2, "env_vars": mine, "object_store_memory": 80 << 20}

        began = time.monotonic()
        self.cluster = Cluster(initialize_head=True, head_node_args={**node(0), "include_dashboard": False})
        for number in range(1, len(NODES)):
            self.cluster.add_node(**node(number))
        self.cluster.wait_for_nodes(timeout=120)
        self.address = self.cluster.address
        print(f"four nodes are up after {time.monotonic() - began:.1f} s")

    def processes(self, number: int) -> list[int]:
        """The processes of a node: Ray's, its workers, and their children."""
        own = {f"WARPLAP_TEST_NODE={number}".encode(), f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']}".encode()}
        pids = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and own <= set((entry / "environ").read_bytes().split(b"\0")):
                    pids.append(int(entry.name))
            except OSError:
                continue
        return pids

    def lose(self, number: int) -> None:
        """A machine is gone at once, with all that runs on it."""
        for process in self.processes(number):
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass

    def racing(self, here: Place) -> tuple[str, int] | None:
        """The job of the race that goes on, and its node, where that is not the head."""
        job, _, process, _ = here.races()[-1] if here.races() else ("", "", 0, 0.0)
        nodes = [number for number in range(1, len(NODES)) if is_alive(process) and process in self.processes(number)]
        return (job, nodes[0]) if nodes else None


@pytest.fixture(scope="module")
def four() -> Iterator[Four]:
    four = Four()
    yield four
    four.cluster.shutdown()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


def place(folder: Path, four: Four, server: Server, problems: int) -> Place:
    """Nodes have an environment of their own: what a test sets reaches their workers by this script."""
    folder.chmod(0o700)
    script = folder / "warplap"
    script.write_text(
        f"#!/bin/sh\nexport TMPDIR={folder} XDG_CACHE_HOME={folder}/near-$WARPLAP_TEST_NODE\nunset XDG_RUNTIME_DIR\n"
        f'export WARPLAP_FLEET_FAULT="$(cat {folder}/fault)"\nexec {program()} "$@"\n'
    )
    script.chmod(0o755)
    engine = ["--engine", "ray", "--address", four.address]
    environment = {"WARPLAP_PROGRAM": str(script), "XDG_CACHE_HOME": str(folder / "near-driver")}
    here = Place(folder, problems, engine, environment, server.url)
    for number, near in enumerate(["driver", *map(str, range(len(NODES)))]):
        own = {**here.environment, "XDG_CACHE_HOME": str(folder / f"near-{near}")}
        for verb in (["init"], ["join"]) if number == 0 else (["join", "--node", near],):
            words = [program(), "--store", server.url, "fleet", *verb]
            subprocess.run(words, env=own, check=True, capture_output=True, timeout=120)
    server.ask(HISTORY)
    return here


def test_a_worker_that_is_killed_takes_its_child_and_the_lock_with_it(
    tmp_path: Path, four: Four, server: Server
) -> None:
    here = place(tmp_path, four, server, 1)
    probe = subprocess.run([program(), "fleet", "work", "--probe", "--threads", "1"], capture_output=True, timeout=60)
    here.device = json.loads(probe.stdout.splitlines()[0])["device"]
    running = here.start(here.fault(percent=0, slow=60_000))
    wait_for("a race", here.races)
    child = here.races()[0][2]
    worker = int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[1])
    lock = next(tmp_path.rglob("cpu.lock")).open("r+")
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_free() -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return not is_alive(child)

    os.kill(worker, signal.SIGKILL)
    took = wait_for("the end of the child and its lock", is_free, 10)
    lock.close()
    print(f"child and lock are gone after {1000 * took:.1f} ms")
    assert took <= 1.0
    wait_for("the next try", lambda: len(here.races()) > 1, 120)
    # Nobody listens any more: the driver ends, and Ray ends what it had running.
    second = here.races()[1][2]
    running.kill()
    running.communicate(timeout=300)
    wait_for("the end of the second try", lambda: not is_alive(second), 60)


def test_a_class_that_no_node_has_is_given_up_with_a_reason(four: Four) -> None:
    words = [sys.executable, "-m", "warplap.fleet.ray", "--patience", "1", "--address", four.address, "--", program()]
    lines = json.dumps({"id": "a", "device": "a-card", "soft": "0", "budget": 1}) + "\nnonsense\n"
    ended = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=300)
    said = {event["id"]: event for event in map(json.loads, ended.stdout.splitlines())}
    assert ended.returncode == 0 and said["a"]["state"] == said["line-2"]["state"] == "failed", ended
    assert "no node has had a device of a-card 0" in said["a"]["why"] and "no job line" in said["line-2"]["why"]


def test_every_job_is_done_once_on_its_class_whoever_dies(tmp_path: Path, four: Four, server: Server) -> None:
    here = place(tmp_path, four, server, 100 if LONG else 5)
    jobs = here.jobs()
    assert len({job["device"] for job in jobs.values()}) == 2 and len(jobs) == (200 if LONG else 10)
    poison = min(jobs)
    # As many die as are chosen by the digits of their ids: at least one of those that may.
    percent = max(15, 1 + min(int(job[:4], 16) % 100 for job in jobs if job != poison))
    fault = here.fault(poison, percent, slow=200 if LONG else 500)
    began = time.time()

    first = here.start(fault)
    wait_for("some races", lambda: len(here.races()) >= len(jobs) // 4)
    wait_for("a race on a node that may be lost", lambda: four.racing(here))
    job, node = four.racing(here) or pytest.fail("the race was over too soon")
    killed = time.time()
    four.lose(node)
    nexts = lambda: [at for which, _, _, at in here.races() if which == job and at > killed]
    wait_for("the lost job's next try", nexts)
    again = nexts()[0] - killed
    print(f"begun again {again:.1f} s after its node was lost")
    wait_for("more races", lambda: len(here.races()) >= len(jobs) // 2)
    first.kill()
    first.communicate(timeout=300)

    lines, errors, code = here.run(fault)
    total, failed = lines[-1], [line for line in lines[:-1] if line["state"] != "done"]
    results = total["done"] + total["from_store"]
    assert code == 1 and [line["id"] for line in failed] == [poison], errors
    assert "exit -9" in failed[0]["why"] and failed[0]["attempt"] == 3
    assert results == len(jobs) - 1 and total["failed"] == 1 and total["open"] == 0, total
    assert all(device == jobs[job]["device"] for job, device, _, _ in here.races())
    died = {mark.name for mark in here.marks.iterdir()}
    assert died - {poison}
    # No key was measured after it was recorded: each came into the fleet's table once.
    recorded = server.ask("select count(*), count(distinct (device, hash)) from history")
    assert recorded == [[str(results), str(results)]]
    times = Counter(job for job, *_ in here.races())
    print(
        f"{len(jobs)} jobs: {len(died)} died once, {results} results ({total['done']} in the second run), "
        f"{sum(times.values())} times begun on a card, {time.time() - began:.0f} s in all"
    )
    assert again <= 30 or not LONG


@pytest.mark.parametrize("address", ["192.0.2.1:6379", "ray://198.51.100.7:10001"])
def test_an_address_beyond_this_machine_needs_a_token(address: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "RAY_AUTH_MODE"}
    words = [sys.executable, "-m", "warplap.fleet.ray", "--probe", "--address", address]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and "RAY_AUTH_MODE=token" in ended.stderr, ended.stderr
    assert json.dumps(address)[1:-1] in ended.stderr


def test_a_python_without_ray_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(name='ray')\n")
    words = [sys.executable, "-m", "warplap.fleet.ray", "--probe"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and "pip install 'warplap[ray]'" in ended.stderr, ended.stderr
