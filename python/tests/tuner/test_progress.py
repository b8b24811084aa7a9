"""What is said of a first call: log lines, and one line on a terminal that is erased."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys

import torch

import warplap
from warplap.tuner import progress

CALL = """
import torch, warplap
warplap.configure(in_memory=True, budget=0.4)
warplap.matmul(torch.randn(96, 64), torch.randn(64, 80))
"""


def test_a_race_logs_one_line_at_its_start_and_one_at_its_end(caplog):
    caplog.set_level(logging.INFO, logger="warplap")
    a, b = torch.randn(48, 32), torch.randn(32, 40)
    warplap.matmul(a, b)
    lines = [r for r in caplog.records if r.name == "warplap" and r.levelno == logging.INFO]
    assert len(lines) == 2, caplog.text
    start, end = (r.getMessage() for r in lines)
    assert start == "gemm:m=48,n=40,k=32,dtype=f32: racing for up to 0.05 s"
    assert end.startswith("gemm:m=48,n=40,k=32,dtype=f32: ") and " won with " in end and end.endswith(" s)")
    warplap.matmul(a, b)
    assert len([r for r in caplog.records if r.levelno == logging.INFO]) == 2


def on_a_terminal(code, **environment):
    """What a program writes to stderr where that is a terminal."""
    here, there = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stderr=there, stdout=subprocess.DEVNULL, env=os.environ | environment
    )
    os.close(there)
    seen = b""
    while True:
        try:
            piece = os.read(here, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(here)
    assert child.wait() == 0, seen
    return seen.decode()


def test_a_terminal_shows_a_line_that_is_erased_at_the_end():
    seen = on_a_terminal(CALL, TERM="xterm")
    assert "warplap: gemm:m=96,n=80,k=64" in seen, seen
    assert seen.endswith("\r\x1b[K"), seen


def test_the_line_can_be_turned_off_and_is_nowhere_but_on_a_terminal():
    assert on_a_terminal(CALL, TERM="xterm", WARPLAP_PROGRESS="0") == ""
    off = CALL.replace("budget=0.4", "budget=0.4, progress=False")
    assert on_a_terminal(off, TERM="xterm") == ""
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_closed_stderr_does_not_harm(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert progress.line() is None
