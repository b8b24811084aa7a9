"""What runs on a GPU runs first in a worker process with a context of its own: a kernel that reads where it may not, or
never ends, takes the worker with it and not the caller.

The caller's side: a compiled Triton kernel, or a callable, and its arguments come in; why it must not run here goes
out, if so. A compiled kernel goes over as its bytes with tensors of the same types, sizes and strides: floats are
drawn, whole numbers (they may be indices) are copied. A callable goes over by its name, with copies of its arguments.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import Any

from . import child_process

_log = logging.getLogger("warplap")

# Seconds a launch may take, a callable (which may have to compile first), and a worker to get ready.
PATIENCE, CALL, START = 10.0, 60.0, 180.0


# Whole numbers from here on may be addresses of this process's memory, which another has not.
_FAR = 1 << 32


class _Gone(Exception):
    """The worker has ended, or says nothing."""


class Worker:
    """One worker process. It is started when first needed and replaced when it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._ready = False
        self.useless: str | None = None

    def begin(self) -> None:
        """Starts it without waiting until it is ready, which takes seconds that others can use."""
        if self._process is None and self.useless is None:
            with contextlib.suppress(OSError):  # told when it is asked
                self._spawn()

    def _spawn(self) -> None:
        env, pipe = {**os.environ, "WARPLAP_SANDBOX": "off"}, subprocess.PIPE
        command = child_process.command("import warplap.callables.worker as p; p.serve()")
        self._process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._rest, self._ready = b"", False
        atexit.register(self.end, self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._spawn()
        assert self._process is not None
        if not self._ready and self._line(START) != {"ready": True}:
            raise _Gone("it did not get ready")
        self._ready = True
        return self._process

    def _line(self, seconds: float) -> Any:
        assert self._process is not None and self._process.stdout is not None
        pipe, until = self._process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise TimeoutError
            more = os.read(pipe, 1 << 16)
            if not more:
                raise _Gone(f"it ended with code {self._process.wait()}")
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def end(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """Ends the worker, or a former one."""
        process = process or self._process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        if process is self._process:
            self._process = None

    def ask(self, order: dict[str, Any], patience: float = PATIENCE) -> tuple[str, str, float] | None:
        """Why a candidate must not run here, if so."""
        if self.useless is not None:
            return None
        try:
            process = self._start()
        except (OSError, _Gone, TimeoutError, ValueError) as why:
            self.end()
            self.useless = str(why)
            _log.warning("no worker process can be had (%s): candidates are tried out in this process", why)
            return None
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
            answer = self._line(patience + order["bytes"] / 1e8)
        except TimeoutError:
            self.end()
            return "timed_out", f"did not end within {patience:g} s in the worker", patience
        except (OSError, _Gone) as why:
            self.end()
            return "crashed", f"the worker was lost: {why}", 0.0
        if answer.get("fatal"):
            self.end()
            return "crashed", str(answer["fatal"])[:300], 0.0
        return None


worker = Worker()


def is_on() -> bool:
    """Whether kernels are to be tried out elsewhere first."""
    return os.environ.get("WARPLAP_SANDBOX") != "off"


def try_kernel(
    kernel: Any, names: list[str], values: list[Any], grid: tuple[int, ...]
) -> tuple[str, str, float] | None:
    """Runs a compiled kernel once in the worker; None also where it cannot be described to it."""
    import torch

    try:
        facts, signature = kernel.metadata, kernel.src.signature
        types = [signature.get(name, "constexpr") for name in names]
        if (
            facts.num_ctas != 1
            or facts.launch_cooperative_grid
            or facts.global_scratch_size
            or facts.profile_scratch_size
        ):
            return None
        order: dict[str, Any] = {"name": kernel.name, "threads": 32 * facts.num_warps, "shared": facts.shared}
    except AttributeError:  # a Triton that keeps them elsewhere
        return None
    size = 0
    seen: dict[int, int] = {}
    report: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="warplap-") as folder:
        for i, (value, kind) in enumerate(zip(values, types)):
            if not isinstance(kind, str):
                return None
            if kind == "constexpr" or value is None:
                report.append({"none": True})
            elif isinstance(value, torch.Tensor):
                if id(value) in seen:
                    report.append({"same": seen[id(value)]})
                    continue
                seen[id(value)] = i
                span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride())) if value.numel() else 0
                dtype = str(value.dtype).removeprefix("torch.")
                about: dict[str, Any] = {"dtype": dtype, "span": span, "device": value.device.index}
                about |= {"offset": value.data_ptr() % 16, "shape": list(value.shape), "strides": list(value.stride())}
                size += span * value.element_size()
                if not value.dtype.is_floating_point:
                    about["file"] = os.path.join(folder, f"{i}.bin")
                    flat = value.as_strided((span,), (1,)).contiguous().view(torch.uint8)
                    raw = flat.cpu().numpy()
                    wide = value.dtype in (torch.int64, torch.uint64) and span > 0
                    if wide and raw.view("int64").max() >= _FAR:
                        return None
                    raw.tofile(about["file"])
                report.append(about)
            elif isinstance(value, (bool, int, float)):
                report.append({"value": value})
            else:
                return None
        cubin = os.path.join(folder, "kernel.cubin")
        with open(cubin, "wb") as file:
            file.write(kernel.asm["cubin"])
        order |= {"cubin": cubin, "grid": [int(n) for n in grid], "types": types, "arguments": report, "bytes": size}
        return worker.ask(order)


def where(fn: Any) -> dict[str, Any]:
    """What another process finds a callable by."""
    main = fn.__module__ == "__main__"
    file = getattr(sys.modules["__main__"], "__file__", None) if main else None
    if "<" in fn.__qualname__ or (main and file is None):
        raise ValueError(f"sandbox: a worker cannot find {fn.__qualname__}, expected a function at the top of a module")
    name = {"callable": fn.__qualname__, "module": fn.__module__, "file": file and os.path.abspath(file)}
    return {**name, "path": [os.path.abspath(p) for p in sys.path]}


def try_call(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str, float] | None:
    """Runs a callable once in the worker."""
    import torch

    with tempfile.TemporaryDirectory(prefix="warplap-") as folder:
        path = os.path.join(folder, "arguments.pt")
        torch.save((args, kwargs), path)
        return worker.ask({**where(fn), "arguments": path, "bytes": os.path.getsize(path)}, CALL)
