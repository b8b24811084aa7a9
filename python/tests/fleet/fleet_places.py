"""What tests of engines share: the program, a store of their own, jobs that take a moment, and a log of races."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

#: The long form, whose figures are in docs/results/fleet.md.
LONG = bool(os.environ.get("WARPLAP_FLEET_LONG"))


def program() -> str:
    return os.environ.get("WARPLAP_PROGRAM") or os.path.join(sysconfig.get_path("scripts"), "warplap")


class Place:
    """A folder with a store (or the URL of one), marks of those that died, and a log of races that began."""

    def __init__(
        self, folder: Path, problems: int, engine: list[str], environment: dict[str, str], store: str | None = None
    ) -> None:
        self.folder, self.engine, self.store = folder, engine, store or str(folder / "store")
        self.device = "cpu"
        self.log, self.marks, self.suite = folder / "log", folder / "marks", folder / "suite.txt"
        self.marks.mkdir()
        sizes = [(8 * (1 + n % 20), 8 * (1 + n // 20)) for n in range(problems)]
        self.suite.write_text("".join(f"gemm:m={m},n={n},k=8,dtype=f32\n" for m, n in sizes))
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("WARPLAP_")},
            "WARPLAP_PYTHON": sys.executable,
            "WARPLAP_PROGRAM": program(),
            "TMPDIR": str(folder),
            **environment,
        }
        self.environment.pop("XDG_RUNTIME_DIR", None)

    def fault(self, poison: str = "none", percent: int = 15, slow: int = 0) -> str:
        return f"die-once={percent},poison={poison},slow={slow},marks={self.marks},log={self.log}"

    def command(self, *more: str) -> list[str]:
        words = [program(), "--store", self.store, "fleet", "tune", "--suite", str(self.suite), "--json"]
        return [*words, "--budget", "0.05", "--bucket", "exact", "--device", self.device, *self.engine, *more]

    def start(self, fault: str, *more: str) -> subprocess.Popen[str]:
        environment = {**self.environment, "WARPLAP_FLEET_FAULT": fault}
        (self.folder / "fault").write_text(fault)
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*more), env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, fault: str, *more: str) -> tuple[list[dict], str, int]:
        """Lines of one run, its stderr, its exit code."""
        said, errors = (child := self.start(fault, *more)).communicate(timeout=1200)
        return [json.loads(line) for line in said.splitlines()], errors, child.returncode

    def jobs(self) -> dict[str, dict]:
        """Every job that there is, by its id."""
        lines, errors, code = self.run("", "--dry-run")
        assert code == 0, errors
        return {line["job"]["id"]: line["job"] for line in lines}

    def races(self) -> list[tuple[str, str, int, float]]:
        """Each race that began: id, class, process, when."""
        if not self.log.exists():
            return []
        words = [line.split(" ") for line in self.log.read_text().splitlines()]
        return [(w[0], w[1], int(w[2]), float(w[3])) for w in words if len(w) == 4]


def wait_for(what: str, look: Callable[[], object], seconds: float = 300.0) -> float:
    """Waits until it is seen; the seconds that took."""
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < seconds, f"{what}: waited for {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
