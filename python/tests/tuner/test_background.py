"""Mode background: torch answers at once, the winner takes over, and a process ends when it wants to."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import torch
from conftest import near

import warplap
from warplap import _warplap


def wait(until, seconds=180.0):
    ends = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < ends, "it never was"
        time.sleep(0.01)


def test_torch_answers_at_once_and_the_winner_takes_over():
    calls = []

    def counted(a, b, c):
        calls.append(1)
        torch.mm(a, b, out=c)

    warplap.configure(mode="background", budget=1.0)
    a, b = torch.randn(64, 48), torch.randn(48, 56)
    warplap.add_variant("matmul", "counted_mm", counted, lambda problem: None if "m=64,n=56,k=48" in problem else "no")
    started = time.perf_counter()
    near(warplap.matmul(a, b), a @ b)
    assert time.perf_counter() - started < 0.8, "nobody waits for a race"
    wait(lambda: warplap.explain(warplap.matmul, a, b).record is not None and _warplap.is_idle())
    for _ in range(200):  # the winner and the library answer in turns, until it is known who is faster in these calls
        near(warplap.matmul(a, b), a @ b)
    wait(_warplap.is_idle)
    winner = warplap.explain(warplap.matmul, a, b).variant
    before = len(calls)
    for _ in range(3):
        near(warplap.matmul(a, b), a @ b)
    assert len(calls) - before == (3 if winner == "counted_mm" else 0)


CODE = """
import torch, warplap
warplap.configure(in_memory=True, budget=60.0, mode="background")
for n in (40, 300, 700):
    x = torch.randn(n, n)
    warplap.matmul(x, x)
print("answered", flush=True)
{then}
"""


def test_a_process_ends_at_once_though_races_wait():
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", CODE.format(then="")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "answered\n", "")
    assert time.monotonic() - started < 40


def test_ctrl_c_ends_a_process_with_a_race_under_way():
    # A shell's background job has the signal ignored, and so have its children.
    listen = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = CODE.format(then="time.sleep(60)").replace("import torch", listen + "import torch", 1)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "answered\n"
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert "KeyboardInterrupt" in said and "panicked" not in said and child.returncode != 0
