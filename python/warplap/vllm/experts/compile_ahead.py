"""Compiling ahead: a call that is not run comes in; Triton's own folder of compiled kernels fills up.

While a call is recorded Triton compiles and launches nothing, and says what it would have compiled. A process that has
loaded vLLM once, and no GPU, builds these in forks of itself, several at a time, each with a limit: a config that takes
the compiler down, or never ends, is refused and takes nobody with it. The folder is keyed by what Triton was asked for,
so the first launch afterwards finds its kernel there.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import threading
from typing import Any, Iterator

from ...callables import child_process

# Seconds that one kernel may take to compile, and that loading vLLM may.
PATIENCE, START = 60.0, 300.0
WHERE = "vllm.model_executor.layers.fused_moe.fused_moe"

Order = dict[str, Any]
Refusal = tuple[str, str, float]


def can() -> bool:
    """Whether Triton compiles here at all: not where it interprets."""
    try:
        import triton
    except ImportError:
        return False
    return not triton.knobs.runtime.interpret


def target() -> list[Any]:
    """What is compiled for: the active driver's."""
    from triton.runtime import driver

    result = driver.active.get_current_target()
    return [result.backend, result.arch, result.warp_size]


@contextlib.contextmanager
def recording() -> Iterator[list[Order]]:
    """While it lasts nothing is compiled or launched. What would have been is listed; what is compiled is not."""
    import triton

    runtime = triton.knobs.runtime
    before, result = runtime.jit_cache_hook, list[Order]()
    wanted = target()

    def heard(**report: Any) -> bool:
        about = report["fn"]
        data = report["compile"]["specialization_data"]
        result.append({"module": about.module, "name": about.name, "data": data, "target": wanted})
        return True

    runtime.jit_cache_hook = heard
    try:
        yield result
    finally:
        runtime.jit_cache_hook = before


def _tuples(value: Any) -> Any:
    """What was a tuple before it was text."""
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def build(order: Order) -> dict[str, Any]:
    """Compiles one kernel into Triton's folder; what is known of it."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fn: Any = importlib.import_module(order["module"])
    for part in order["name"].split("."):
        fn = getattr(fn, part)
    while not isinstance(fn, triton.runtime.JITFunction):
        fn = fn.fn
    report = json.loads(order["data"])

    def constant(value: Any) -> Any:
        if isinstance(value, dict) and "constexpr" in value:
            return tl.constexpr(value["constexpr"])
        return tl.dtype(value) if isinstance(value, str) and tl.dtype.is_dtype(value) else _tuples(value)

    constants = {tuple(k): constant(v) for k, v in zip(report["constant_keys"], report["constant_vals"])}
    attributes = {tuple(k): v for k, v in zip(report["attrs_keys"], report["attrs_vals"])}
    signature = {name: _tuples(kind) for name, kind in report["signature"].items()}
    options = {name: _tuples(value) for name, value in report["options"].items()}
    source = ASTSource(fn, signature, constants, attributes)
    kernel = triton.compile(source, target=GPUTarget(*order["target"]), options=options)
    return {"shared": kernel.metadata.shared, "hash": kernel.hash}


class Compiler:
    """The program's side: orders go out, what became of them comes back. Ends with the program."""

    def __init__(self, at_once: int | None = None, patience: float = PATIENCE, room: int | None = None) -> None:
        self._at_once = at_once or max(len(os.sched_getaffinity(0)) - 1, 1)
        self._patience, self.room = patience, room
        self._process: subprocess.Popen[str] | None = None
        self._heard = threading.Condition()
        self._known: dict[str, Refusal | None] = {}
        self._asked: set[str] = set()
        self.seconds = 0.0  # of compiling, in all processes together

    def begin(self) -> None:
        """Starts the process, which loads vLLM meanwhile."""
        if self._process is not None:
            return
        order = f"c.serve({WHERE!r}, {self._at_once}, {self._patience})"
        command = child_process.command(f"import warplap.vllm.experts.compile_server as c; {order}")
        env = {**os.environ, "WARPLAP_MODE": "off"}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=nothing, text=True)
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError, KeyError):
                answer = json.loads(line)
                with self._heard:
                    self._known[answer["id"]] = self._judged(answer)
                    self.seconds += answer.get("seconds", 0.0)
                    self._heard.notify_all()
        with self._heard:  # it has gone: what is open is compiled by its first launch
            self._process = None
            for order in self._asked - self._known.keys():
                self._known[order] = None
            self._heard.notify_all()

    def _judged(self, answer: dict[str, Any]) -> Refusal | None:
        if "refused" in answer:
            return tuple(answer["refused"])  # type: ignore[return-value]
        if self.room is not None and answer["shared"] > self.room:
            return "over_limits", f"it takes {answer['shared']} bytes of shared memory, there are {self.room}", 0.0
        return None

    def order(self, orders: list[Order]) -> list[str]:
        """Has kernels compiled, each once; their names."""
        self.begin()
        names = []
        for one in orders:
            name = json.dumps(one, sort_keys=True)
            names.append(name)
            with self._heard:
                if name in self._asked:
                    continue
                self._asked.add(name)
                process = self._process
            try:
                if process is None or process.stdin is None:
                    raise OSError("gone")
                process.stdin.write(json.dumps({"id": name, **one}) + "\n")
            except OSError:
                with self._heard:
                    self._known.setdefault(name, None)
        with contextlib.suppress(OSError, AttributeError):
            self._process.stdin.flush()  # type: ignore[union-attr]
        return names

    def wait(self, names: list[str]) -> Refusal | None:
        """Waits for kernels; why one of them must not be launched, if so."""
        with self._heard:
            longest = START + len(self._asked) * self._patience
            self._heard.wait_for(lambda: all(name in self._known for name in names), longest)
            return next((self._known[n] for n in names if self._known.get(n) is not None), None)

    def end(self) -> None:
        """Ends the process."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
