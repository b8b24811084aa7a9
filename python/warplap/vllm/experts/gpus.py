"""Rows dealt out to several GPUs: a process for each, which the same program is; the table is put together here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from . import fused
from .journal import Journal
from .shapes import Shape
from .tune import facts_of, finish

_HEARD = ("row", "lost", "skipped", "failed")


def gpus() -> list[dict[str, str]]:
    """What a process needs in its environment to have each GPU to itself."""
    import torch

    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = seen.split(",") if seen else [str(i) for i in range(torch.cuda.device_count())]
    return [{"CUDA_VISIBLE_DEVICES": name.strip()} for name in names if name.strip()]


def hands(tokens: Sequence[int], count: int) -> list[list[int]]:
    """Rows for each of so many, like cards: everyone has small and large ones."""
    order = sorted(set(tokens), reverse=True)
    return [hand for hand in (sorted(order[i::count]) for i in range(count)) if hand]


def deal(
    shape: Shape,
    folder: Path,
    tokens: Sequence[int],
    argv: Sequence[str],
    devices: Sequence[Mapping[str, str]],
    about: dict[str, Any],
    tell: Callable[[dict[str, Any]], None],
    again: bool = False,
) -> int:
    """Races the rows in a process for each card; the exit code."""
    began = time.monotonic()
    journal = Journal(folder, fused.table_name(shape), facts_of(shape, fused.Device.here()))
    if again:
        journal.forget()
    rest = [word for word in argv if word not in ("--again", "--all-gpus", "--json")]
    tell({"event": "started", "table": str(journal.table), "rows": len(set(tokens)), "done": len(journal.rows())})
    # Cores are shared too.
    compilers = [] if "--compilers" in rest else ["--compilers", str(max(1, (os.cpu_count() or 1) // len(devices) - 1))]
    workers = []
    for hand, gpu in zip(hands(tokens, len(devices)), devices):
        rows = ",".join(map(str, hand))
        command = [sys.executable, "-m", "warplap.vllm", *rest, "--json", "--rows", rows, *compilers]
        env = {**os.environ, **gpu, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        workers.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    heard = [threading.Thread(target=_relay, args=(worker, tell), daemon=True) for worker in workers]
    for thread in heard:
        thread.start()
    try:
        codes = [worker.wait() for worker in workers]
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
    for thread in heard:
        thread.join()
    tokens = sorted({*tokens, *journal.rows()})
    finish(journal, shape, tokens, {**about, "gpus": len(workers), "seconds": round(time.monotonic() - began, 1)}, tell)
    return next((code for code in codes if code), 0)


def _relay(worker: subprocess.Popen[str], tell: Callable[[dict[str, Any]], None]) -> None:
    """Hands on what a worker says of its rows."""
    import json

    from .race import Row

    assert worker.stdout is not None
    for line in worker.stdout:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") not in _HEARD:
            continue
        if event["event"] == "row":
            event["row"] = Row(**{k: v for k, v in event["row"].items() if k != "gain"})
        tell({**event, "event": "lost", "why": event["error"]} if event["event"] == "failed" else event)
