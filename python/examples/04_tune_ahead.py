"""Tune here, ship, serve there: two processes, two stores. What serves answers at once, measures nothing, and is never
slower than torch: a winner that was imported is proved and has met torch's own call, or torch's own call answers."""

import statistics
import subprocess
import sys
import tempfile
import time

import torch

import warplap

SIZES = [(64, 64, 64), (320, 320, 320), (8, 1024, 512)]


def tune(bundle: str) -> None:
    """On the machine that has time."""
    problems = [f"gemm:m={m},n={n},k={k},dtype=f32" for m, n, k in SIZES]
    for tuned in warplap.tune(problems, budget=2.0):
        print(tuned)
    print(warplap.store.export(bundle), "records")


def serve(bundle: str) -> None:
    """On the machine that serves, when it is set up and when it runs."""
    print(warplap.store.import_(bundle))
    for m, n, k in SIZES:
        a, b = torch.randn(m, k), torch.randn(k, n)
        with warplap.replay():
            assert torch.allclose(warplap.matmul(a, b), a @ b, atol=1e-3)
            ours, torchs = times(warplap.matmul, torch.matmul, a, b)
            who = warplap.explain(warplap.matmul, a, b).answers
        print(f"{m}x{n}x{k}: {who} {ours:.1f} us, torch {torchs:.1f} us, {torchs / ours:.2f} x as fast")


def times(one, other, *args, rounds=15):
    """Medians in microseconds, taken in turns."""
    took = ([], [])
    for turn in range(2 * rounds):
        call, began = (one, other)[turn % 2], time.perf_counter()
        for _ in range(50):
            call(*args)
        took[turn % 2].append((time.perf_counter() - began) / 50 * 1e6)
    return statistics.median(took[0]), statistics.median(took[1])


if __name__ == "__main__":
    if len(sys.argv) == 4:
        step, store, bundle = sys.argv[1:]
        warplap.configure(store=store)
        {"tune": tune, "serve": serve}[step](bundle)
    else:
        with tempfile.TemporaryDirectory() as folder:
            for step in ("tune", "serve"):
                store, bundle = f"{folder}/{step}", f"{folder}/bundle.jsonl"
                subprocess.run([sys.executable, __file__, step, store, bundle], check=True)
