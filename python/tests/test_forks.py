"""Forked children: multiprocessing and DataLoader workers, whose parent had threads."""

from __future__ import annotations

import subprocess
import sys
import textwrap

START = """
import multiprocessing, sys, torch, warplap
warplap.configure(in_memory=True, budget=0.2)
known = torch.randn(300, 300), torch.randn(300, 300)
x, w = torch.randn(40, 256), torch.randn(512, 256)
for _ in range(20):
    warplap.matmul(*known); known[0] @ known[1]  # both have threads by now

def right(a, b):
    return torch.allclose(warplap.matmul(a, b), (a.double() @ b.double()).float(), atol=1e-2)
"""

CHILD = """
def child():
    torch.set_num_threads(1)  # with more than one torch's own loops wait for ever after a fork
    a, b = known
    one = warplap.matmul(a, b)
    rows = one[:3].double().numpy() - a[:3].double().numpy() @ b.double().numpy()
    fine = abs(rows).max() < 1e-2
    import numpy as np
    new = np.random.rand(65, 130).astype(np.float32), np.random.rand(130, 70).astype(np.float32)
    fine &= abs(warplap.matmul(*new) - new[0].astype(float) @ new[1]).max() < 1e-2  # raced in the child
    sys.exit(0 if fine else 1)

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(90)
if process.exitcode is None:
    process.kill()
    sys.exit("the child hangs")
assert right(*known)
sys.exit(process.exitcode)
"""

LOADER = """
class Products(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        a = torch.full((70 + i, 64), float(i))
        return warplap.matmul(a, torch.ones(64, 33)).sum() - a.sum() * 33

loader = torch.utils.data.DataLoader(Products(), num_workers=2, multiprocessing_context="fork", timeout=90)
assert all(abs(float(off)) < 1.0 for off in loader)
assert right(*known)
"""


def run(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_forked_child_computes_and_races():
    run(START + CHILD)


def test_workers_of_a_data_loader_compute():
    run(START + LOADER)
