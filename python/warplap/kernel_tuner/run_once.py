"""One launch of a CUDA kernel in a process of its own: a kernel that reads where it may not, or never ends, takes that
process with it and not the caller's context. The caller's side and, by :func:`serve`, the process's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Mapping, NoReturn, Sequence

from .. import _warplap
from ..callables import child_process

if TYPE_CHECKING:  # the process itself loads nothing that it does not need
    from .launch import Sizes

# Seconds a process may take to start and compile, and a launch.
START, PATIENCE = 180.0, 60.0


class Failed(RuntimeError):
    """A kernel that could not be run; ``why`` is one word for it."""

    def __init__(self, why: str, reason: str) -> None:
        super().__init__(reason)
        self.why = why


def run(
    source: str,
    entry: str,
    options: Sequence[str],
    sizes: Sizes,
    arguments: Sequence[Any],
    constants: Mapping[str, Any],
    gpu: int,
    patience: float = PATIENCE,
    loud: bool = True,
) -> list[Any]:
    """The arguments as a kernel leaves them, in copies. What the kernel prints goes to where errors go, if ``loud``."""
    import numpy

    with tempfile.TemporaryDirectory(prefix="warplap-") as folder:
        plan = {"source": source, "entry": entry, "options": list(options), **sizes._asdict(), "gpu": gpu}
        plan["arguments"] = [_put(folder, f"in{i}", value) for i, value in enumerate(arguments)]
        plan["constants"] = [[name, *_put(folder, f"constant{i}", constants[name])] for i, name in enumerate(constants)]
        with open(os.path.join(folder, "plan.json"), "w") as file:
            json.dump(plan, file)
        size = sum(getattr(value, "nbytes", 0) for value in arguments)
        report = _ended(folder, patience + size / 1e8, loud)
        if report["why"] == "no_device":
            raise NotImplementedError(report["reason"])
        if report["why"]:
            raise Failed(report["why"], report["reason"])
        after = []
        for i, value in enumerate(arguments):
            if getattr(value, "ndim", 0) == 0 and not isinstance(value, numpy.ndarray):
                after.append(value)
            else:
                after.append(numpy.fromfile(os.path.join(folder, f"out{i}"), value.dtype).reshape(value.shape))
        return after


def _put(folder: str, name: str, value: Any) -> tuple[bool, str]:
    """Writes the bytes of an argument; whether it is a buffer, and where they are."""
    import numpy

    numpy.ascontiguousarray(value).tofile(os.path.join(folder, name))
    return isinstance(value, numpy.ndarray), name


def _ended(folder: str, patience: float, loud: bool) -> dict[str, Any]:
    """Starts the process and waits for its end, or ends it."""
    env = {**os.environ, "WARPLAP_ONCE": folder, "WARPLAP_SANDBOX": "off"}
    env.setdefault("VIRTUAL_ENV", sys.prefix)  # where the compiler may lie, though nobody activated it
    to = 2 if loud else subprocess.DEVNULL
    process = subprocess.Popen(
        child_process.command("import warplap"), env=env, stdin=subprocess.DEVNULL, stdout=to, stderr=to
    )
    built, end = (os.path.join(folder, name) for name in ("built", "end.json"))
    until, wait, running = time.monotonic() + START, 1e-3, False
    try:
        while process.poll() is None:
            if not running and os.path.exists(built):
                until, running = time.monotonic() + patience, True
            if time.monotonic() > until:
                what = f"did not end within {patience:.0f} s" if running else f"was not built within {START:.0f} s"
                return {"why": "timed_out", "reason": f"timed out: it {what}"}
            time.sleep(wait)
            wait = min(2 * wait, 0.02)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    try:
        with open(end) as file:
            report: dict[str, Any] = json.load(file)
            return report
    except (OSError, ValueError):
        code = process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return {"why": "crashed", "reason": f"crashed: it ended its process with {how}"}


def serve() -> NoReturn:
    """Does what the folder says that the environment names, writes down what came of it, and ends."""
    folder = os.environ.pop("WARPLAP_ONCE")
    with open(os.path.join(folder, "plan.json")) as file:
        plan = json.load(file)

    def read(name: str) -> bytes:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()

    def built() -> None:
        with open(os.path.join(folder, "built"), "w"):
            pass

    report = {"why": "", "reason": ""}
    try:
        after = _warplap.run_once(
            plan["source"], plan["entry"], plan["options"], plan["grid"], plan["block"], plan["shared"],
            [(buffer, read(name)) for buffer, name in plan["arguments"]],
            [(name, read(file)) for name, _, file in plan["constants"]], built, gpu=plan["gpu"],
        )  # fmt: skip
        for i, held in enumerate(after):
            if held is not None:
                with open(os.path.join(folder, f"out{i}"), "wb") as out:
                    out.write(held)
    except NotImplementedError as error:
        report = {"why": "no_device", "reason": str(error)}
    except RuntimeError as error:
        word, reason = error.args if len(error.args) == 2 else ("launch_failed", str(error))
        report = {"why": word, "reason": first_error(reason)}
    except (ValueError, OverflowError, TypeError) as error:
        report = {"why": "launch_failed", "reason": str(error)}
    with open(os.path.join(folder, "end.part"), "w") as file:
        json.dump(report, file)
    os.replace(os.path.join(folder, "end.part"), os.path.join(folder, "end.json"))
    sys.stdout.flush()
    os._exit(0)


def first_error(said: str) -> str:
    """The line of a compiler's words that matters; all of a single line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else said)
