"""Triton's compiler in processes of its own: it keeps the interpreter's lock, and others race meanwhile.

A process is kept that has loaded torch and Triton, which takes longer than compiling; each order runs in a fork of it.
The server listens on a socket in a folder that only this user can open, and ends with the program that started it.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from typing import Any

from . import child_process

# Seconds the server has to get ready, and an order may take.
START, PATIENCE = 60.0, 120.0


class _Order(socketserver.StreamRequestHandler):
    """One order, in a fork: a function of this package by its name, and its arguments."""

    def handle(self) -> None:
        order = json.loads(self.rfile.readline())
        try:
            run = getattr(importlib.import_module(f"warplap.{order['module']}"), order["function"])
            run(*order["args"], **order["kwargs"])
            answer = "done"
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        self.wfile.write(answer.encode())


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    max_children = 16
    _parent = os.getppid()

    def service_actions(self) -> None:
        """Between orders: ends when the program has gone."""
        super().service_actions()
        if os.getppid() != self._parent:
            os._exit(0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that has gone is nobody's trouble."""


def serve(place: str) -> None:
    """Takes orders until the program that started it has gone."""
    import torch.sparse._triton_ops  # noqa: F401

    _Server(place, _Order).serve_forever(poll_interval=0.5)


class Compiler:
    """The program's side: starts the server when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def _place(self) -> str:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.end()
                self._folder = tempfile.mkdtemp(prefix="warplap-")
                place = os.path.join(self._folder, "orders")
                command = child_process.command(f"import warplap.callables.compile_pool as c; c.serve({place!r})")
                env = {**os.environ, "WARPLAP_MODE": "off"}
                nothing = subprocess.DEVNULL
                self._process = subprocess.Popen(command, env=env, stdin=nothing, stdout=nothing, stderr=nothing)
                atexit.register(self.end)
            assert self._folder is not None
            return os.path.join(self._folder, "orders")

    def ask(self, module: str, function: str, *args: Any, **kwargs: Any) -> str:
        """Has a function run in a fork of the server; "done", or why not. Any thread may ask."""
        place, until = self._place(), time.monotonic() + START
        order = json.dumps({"module": module, "function": function, "args": args, "kwargs": kwargs})
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            while True:  # until it listens
                try:
                    line.connect(place)
                    break
                except (FileNotFoundError, ConnectionRefusedError) as why:
                    gone = self._process is None or self._process.poll() is not None
                    if gone or time.monotonic() > until:
                        return f"the compiler's process cannot be had: {why}"
                    time.sleep(0.05)
            line.settimeout(PATIENCE)
            line.sendall(order.encode() + b"\n")
            answer = b""
            while more := line.recv(1 << 12):
                answer += more
        return answer.decode(errors="replace") or "its process ended without an answer"

    def end(self) -> None:
        """Ends the server."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._process = self._folder = None


compiler = Compiler()
