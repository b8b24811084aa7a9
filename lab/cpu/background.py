"""How long a call takes while a race goes on in the background, and when its winner takes over.

    python lab/cpu/background.py [--budget 4] [--runs 3] [--only matmul]

Needs torch and the package (a release build). In mode `background` torch answers until the race is over. Each turn of
the loop makes one call of ours and one of torch's own: what else the machine does, both of them see. A stall is how
much longer a call took than torch's median.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F

import warplap
from warplap import _warplap

AFTER = 3.0
"""Seconds that calls go on for when the race is over."""
PAUSE = 1e-3
"""What a program does between two turns."""


def problems():
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    yield "matmul 256x256x256", lambda: warplap.matmul(a, b), lambda: a @ b
    x, w = torch.randn(32, 1024), torch.randn(512, 1024)
    yield "linear 32x1024x512", lambda: warplap.linear(x, w), lambda: F.linear(x, w)
    s = torch.randn(64, 512)
    yield "softmax 64x512", lambda: warplap.softmax(s), lambda: F.softmax(s, -1)


def took(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def one(ours, torchs, budget: float) -> dict[str, float]:
    warplap.configure(in_memory=True, mode="background", budget=budget)
    first = took(ours)
    turns: list[tuple[float, float, bool]] = []
    idle_since = None
    while idle_since is None or time.perf_counter() - idle_since < AFTER:
        racing = not _warplap.is_idle()
        if racing:
            idle_since = None
        elif idle_since is None:
            idle_since = time.perf_counter()
        turns.append((took(ours), took(torchs), racing))
        time.sleep(PAUSE)
    median = statistics.median(theirs for _, theirs, _ in turns)
    longest = {"first": first}
    for name, side in (("ours", 0), ("torch", 1)):
        for racing in (True, False):
            seen = [turn[side] for turn in turns if turn[2] == racing]
            longest[f"{name} {'racing' if racing else 'after'}"] = max(seen, default=median) - median
    return {"median": median, "calls": len(turns)} | longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=4.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    print("milliseconds; the longest stall of a call while the race goes on, and from its end on")
    names = ["median", "first", "ours racing", "torch racing", "ours after", "torch after"]
    print(f"{'problem':20}  {'calls':>6}  " + "  ".join(f"{name:>12}" for name in names))
    for name, ours, torchs in problems():
        if args.only not in name:
            continue
        for _ in range(args.runs):
            row = one(ours, torchs, args.budget)
            figures = "  ".join(f"{1e3 * row[name]:12.2f}" for name in names)
            print(f"{name:20}  {row['calls']:6}  {figures}", flush=True)


if __name__ == "__main__":
    main()
