"""A real PostgreSQL: ``WARPLAP_TEST_POSTGRES`` names a folder of programs, else Debian's. None found is a failure."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

#: ``initdb`` refuses root; this is ``nobody``.
NOBODY = 65534


def programs() -> Path:
    named = os.environ.get("WARPLAP_TEST_POSTGRES")
    folders = [Path(named)] if named else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    there = [folder for folder in folders if (folder / "initdb").exists()]
    assert there, "no PostgreSQL: apt-get install postgresql, or WARPLAP_TEST_POSTGRES names the folder of its programs"
    return there[0]


class Server:
    """A server of our own, with one empty database."""

    def __init__(self) -> None:
        self.programs = programs()
        # Not in a folder of pytest's: those are closed to others, and the server may run as another user.
        folder = self.folder = Path(tempfile.mkdtemp(prefix="warplap-pg-"))
        with socket.create_server(("127.0.0.1", 0)) as held:
            self.port = held.getsockname()[1]
        self.owned = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        (folder / "password").write_text("owner-password\n")
        if self.owned:
            os.chown(folder, NOBODY, NOBODY)
            os.chown(folder / "password", NOBODY, NOBODY)
        made = ["--no-sync", "-U", "owner", "--auth=scram-sha-256", f"--pwfile={folder}/password", "-E", "UTF8"]
        self.run("initdb", *made, "--locale=C", "-D", f"{folder}/cluster")
        settings = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={folder}"
        self.run("pg_ctl", "-D", f"{folder}/cluster", "-w", "-t", "120", "-l", f"{folder}/log", "-o", settings, "start")
        self.url = f"postgres://owner:owner-password@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *words: str) -> None:
        # Into a file: what a server that is started here inherits would keep a reader of a pipe waiting.
        with open(self.folder / "said", "w") as said:
            command = [str(self.programs / program), *words]
            ended = subprocess.run(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=180, **self.owned
            )
        assert ended.returncode == 0, f"{program}: {(self.folder / 'said').read_text()}"

    def ask(self, sql: str) -> list[list[str]]:
        """The rows of a query, as text."""
        words = [str(self.programs / "psql"), "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", self.url, "-c", sql]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return [line.split("\t") for line in ended.stdout.splitlines()]

    def end(self) -> None:
        self.run("pg_ctl", "-D", f"{self.folder}/cluster", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self.folder)
