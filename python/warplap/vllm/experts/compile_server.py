"""The compilers' process: orders come in a line each; what became of them goes out a line each."""

from __future__ import annotations

import collections
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

from .compile_ahead import build


class _Fork:
    """One order in a process of its own, which leads a group: the assembler it starts ends with it."""

    def __init__(self, order: dict[str, Any], patience: float) -> None:
        self.id, self.began, self.patience = order["id"], time.monotonic(), patience
        self.answer = b""
        self.pipe, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _work(order, theirs)
        os.close(theirs)

    def overdue(self) -> bool:
        return time.monotonic() - self.began > self.patience

    def ended(self) -> dict[str, Any]:
        """What became of it. One that is still busy is ended."""
        late = self.overdue() and not self.answer
        os.close(self.pipe)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass  # it has not made its group yet, or has gone
        try:
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        seconds = time.monotonic() - self.began
        report: dict[str, Any] = {"id": self.id, "seconds": seconds}
        if late:
            return {**report, "refused": ["timed_out", f"did not compile within {self.patience:g} s", seconds]}
        try:
            return {**report, **json.loads(self.answer)}
        except ValueError:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            how = f"with {signal.Signals(number).name}" if number else f"with exit code {os.WEXITSTATUS(status)}"
            return {**report, "refused": ["does_not_build", f"the compiler's process ended {how}", 0.0]}


def _work(order: dict[str, Any], pipe: int) -> None:
    """The fork: compiles, answers and ends, whatever happens."""
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            answer = build(order)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            word = "over_limits" if type(error).__name__ == "OutOfResources" else "does_not_build"
            answer = {"refused": [word, text, 0.0]}
        os.write(pipe, json.dumps(answer).encode())
    finally:
        os._exit(0)


def serve(module: str, at_once: int, patience: float) -> None:
    """Takes orders until the program that started it has gone."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what compilers print is not for the caller
    importlib.import_module(module)
    waiting: collections.deque[dict[str, Any]] = collections.deque()
    running: dict[int, _Fork] = {}
    text, source = b"", sys.stdin.fileno()
    while True:
        while waiting and len(running) < at_once:
            fork = _Fork(waiting.popleft(), patience)
            running[fork.pipe] = fork
        ready, _, _ = select.select([source, *running], [], [], 0.2)
        if source in ready:
            more = os.read(source, 1 << 16)
            if not more:
                break
            *lines, text = (text + more).split(b"\n")
            waiting.extend(json.loads(line) for line in lines if line.strip())
        for pipe, fork in list(running.items()):
            if pipe in ready:
                more = os.read(pipe, 1 << 16)
                fork.answer += more
                if more:
                    continue
            elif not fork.overdue():
                continue
            del running[pipe]
            print(json.dumps(fork.ended()), file=out)
    for fork in running.values():
        fork.ended()
