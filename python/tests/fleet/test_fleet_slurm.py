"""The Slurm engine on a real cluster on loopback: one node of a class with one CPU thread, two of a class with two.

About 90 s. Skipped where Slurm is not installed.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_places import LONG, Place, program, wait_for

NODES = {"a": 1, "b": 2, "c": 2}

pytestmark = pytest.mark.skipif(
    not (shutil.which("slurmctld", path="/usr/sbin:" + os.environ["PATH"]) and Path("/usr/sbin/munged").exists()),
    reason="Slurm is not installed: apt-get install slurm-wlm munge",
)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for one in held:
        one.close()
    return ports


CONF = """
ClusterName=warplap
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdTimeout=300
ReturnToService=2
"""


class Slurm:
    """A controller and its nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.daemons = folder, {}
        ports = free_ports(1 + len(NODES))
        host = socket.gethostname().split(".")[0]
        text = CONF.format(host=host, user=getpass.getuser(), dir=folder, port=ports[0])
        for (name, threads), port in zip(NODES.items(), ports[1:]):
            text += f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 Feature=t{threads}\n"
        conf = folder / "slurm.conf"
        conf.write_text(text + "PartitionName=all Nodes=ALL Default=YES State=UP\n")
        (folder / "state").mkdir()
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.environment = {"SLURM_CONF": str(conf)}
        munge = [f"--{n}={folder}/{f}" for n, f in [("socket", "munge.sock"), ("key-file", "key"), ("pid-file", "munge.pid"),
                 ("log-file", "munge.log"), ("seed-file", "munge.seed")]]
        self.start("munged", ["/usr/sbin/munged", "--foreground", "--force", *munge])
        wait_for("munge", (folder / "munge.sock").exists, 30)
        self.start("slurmctld", [self.tool("slurmctld"), "-D", "-f", str(conf)])
        for name in NODES:
            self.start(name, [self.tool("slurmd"), "-D", "-N", name, "-f", str(conf)])
        sinfo = ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]
        ask = lambda: subprocess.run(sinfo, env={**os.environ, **self.environment}, capture_output=True, text=True).stdout
        wait_for("three idle nodes", lambda: len(ask().split()) == len(NODES), 60)

    @staticmethod
    def tool(name: str) -> str:
        return shutil.which(name, path="/usr/sbin:" + os.environ["PATH"]) or name

    def start(self, name: str, words: list[str]) -> None:
        log = open(self.folder / f"{name}.out", "wb")
        environment = {**os.environ, **self.environment}
        self.daemons[name] = subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    def of_node(self, node: str) -> list[int]:
        """Processes of a node's jobs, and the step daemons above them."""
        pids = set()
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if f"SLURMD_NODENAME={node}".encode() in words and f"SLURM_CONF={self.folder}/slurm.conf".encode() in words:
                pids.add(int(entry.name))
                above = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if Path(f"/proc/{above}/comm").read_text().startswith("slurmstepd"):
                    pids.add(above)
        return sorted(pids)

    def lose(self, node: str) -> None:
        """A machine is gone: its daemon, its steps, its jobs."""
        self.daemons[node].kill()
        for process in self.of_node(node):
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass

    def end(self) -> None:
        for node in NODES:
            self.lose(node)
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    tmp_path.chmod(0o700)
    folder = tmp_path / "slurm"
    folder.mkdir(mode=0o755)
    slurm = Slurm(folder)
    yield slurm
    slurm.end()


def wrapped(folder: Path) -> Path:
    """The program as each node has it: nodes on one machine differ in the threads they race with."""
    script = folder / "warplap"
    cases = "".join(f"{name}) export WARPLAP_THREADS={threads};; " for name, threads in NODES.items())
    script.write_text(f'#!/bin/sh\nexport WARPLAP_NODE="$SLURMD_NODENAME"\ncase "$SLURMD_NODENAME" in {cases}esac\nexec {program()} "$@"\n')
    script.chmod(0o755)
    return script


def test_what_a_lost_node_took_with_it_is_submitted_again(tmp_path: Path, slurm: Slurm) -> None:
    environment = {**slurm.environment, "WARPLAP_PROGRAM": str(wrapped(tmp_path))}
    here = Place(tmp_path, 60 if LONG else 12, ["--engine", "slurm", "--silence", "10"], environment)
    jobs = here.jobs()
    assert len({job["device"] for job in jobs.values()}) == 2 and len(jobs) == (120 if LONG else 24)
    began = time.time()
    running = here.start(here.fault(slow=300))
    wait_for("jobs on node c", lambda: slurm.of_node("c"), 60)
    wait_for("some races", lambda: len(here.races()) >= 4)
    slurm.lose("c")
    killed = time.time()
    said, errors = running.communicate(timeout=600)
    lines = [__import__("json").loads(line) for line in said.splitlines()]
    assert running.returncode == 0, errors
    assert lines[-1]["done"] + lines[-1]["from_store"] == len(jobs) and lines[-1]["failed"] == 0, lines[-1]
    assert all(device == jobs[job]["device"] for job, device, _, _ in here.races())
    assert len({line["node"] for line in lines[:-1]}) >= 2
    died = len(list(here.marks.iterdir()))
    print(
        f"{len(jobs)} jobs on 3 nodes, {died} died once, one node lost: all done {time.time() - killed:.0f} s after the "
        f"loss, {time.time() - began:.0f} s in all, {len(here.races())} races begun"
    )
    again = here.run("")[0][-1]
    assert again["from_store"] == len(jobs), again
