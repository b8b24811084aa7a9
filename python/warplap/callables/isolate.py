"""A first run in a process of its own: a candidate that takes its process down does not take the caller's.

On the CPU the process is a fork of this one, so that whatever the caller has defined is there. A CUDA context does not
survive a fork: what runs on a GPU is tried out elsewhere, or not at all.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
import warnings
from typing import Any, Callable

from .harness import Rig

# Seconds a first run may take.
PATIENCE = 10.0

Refusal = "tuple[str, str, float] | None"


def can_fork(rig: Rig, *, native: bool = False) -> bool:
    """Whether a fork of this process can run a candidate. One that is ``native`` has nothing to do with torch."""
    if rig.device is not None or not hasattr(os, "fork") or os.environ.get("WARPLAP_SANDBOX") == "off":
        return False
    if native:
        return True
    try:
        import torch
    except ImportError:
        return True
    return not torch.cuda.is_initialized()


def first_run(rig: Rig, run: Callable[..., Any], patience: float = PATIENCE) -> tuple[str, str, float] | None:
    """Why a candidate must not run here, if so. What it raises is found out here again and is no reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads of this process are not missed: the child only runs the candidate
        child = os.fork()
    if child == 0:
        _run(rig, run)
    until = time.monotonic() + patience
    wait = 1e-4
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return _how(status)
        time.sleep(wait)
        wait = min(2 * wait, 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timed_out", f"did not end within {patience:g} s in a process of its own", patience


def _run(rig: Rig, run: Callable[..., Any]) -> None:
    """The child: runs the candidate and ends, whatever happens."""
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        try:
            import torch

            torch.set_num_threads(1)  # threads do not survive a fork
        except ImportError:
            pass
        run(*rig.args, **rig.kwargs)
    except BaseException:
        pass
    finally:
        os._exit(0)


def _how(status: int) -> tuple[str, str, float] | None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "crashed", f"ended its process with {signal.Signals(number).name}", 0.0
    code = os.WEXITSTATUS(status)
    return ("crashed", f"ended its process with exit code {code}", 0.0) if code else None
