"""What a first call costs: whether its budget holds, and what an unseen size of a known bucket costs on top.

    python lab/cpu/first_call.py [--budgets 0.2 1 4] [--runs 3] [--json FILE]

Needs torch and the package (a release build). The first table is the wall time of a first call with a fresh store over
its budget, worst of the runs. The second is the first call of a size that nobody has raced, in a bucket that somebody
has, beside first calls of other tensors of the same size: the difference is what being new costs, median of the sizes.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time

import torch
import warplap
from use import attended, layer, product, sparse

FIRST = {
    "matmul 96³": lambda: product(96, 96, 96)[0],
    "matmul 512³": lambda: product(512, 512, 512)[0],
    "matmul 2048³": lambda: product(2048, 2048, 2048)[0],
    "linear 33×768→768": lambda: layer(33, 768, 768)[0],
    "attention 1×8×512×64 causal": lambda: attended(1, 8, 512, 64, causal=True)[0],
    "attention 2×8×1024×64": lambda: attended(2, 8, 1024, 64)[0],
    "bsr 1024×1024×256 bs 32 12 %": lambda: sparse(1024, 1024, 256, 32, 0.125)[0],
    "bsr 2048×2048×128 bs 64 10 %": lambda: sparse(2048, 2048, 128, 64, 0.1)[0],
    "norm 512×1024": lambda: normed(512),
}


def normed(rows: int):
    x, w = torch.randn(rows, 1024), torch.randn(1024)
    return lambda: warplap.norm(x, w)


UNSEEN = {
    "matmul n×64×64": lambda n: product(n, 64, 64)[0],
    "linear n×64→64": lambda n: layer(n, 64, 64)[0],
    "attention 1×2×n×32": lambda n: attended(1, 2, n, 32)[0],
    "norm n×1024": lambda n: normed(n),
}
"""By the size that changes: 128 is raced, and those between 65 and 127 share its bucket."""


def wall(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def budgets(options) -> list[dict]:
    print(f"{'first call':30s}" + "".join(f"{f'budget {b} s':>14s}" for b in options.budgets))
    rows = []
    for name, make in FIRST.items():
        worst = []
        for budget in options.budgets:
            taken = []
            for _ in range(options.runs):
                warplap.configure(in_memory=True, budget=budget)
                taken.append(wall(make()))
            worst.append(max(taken) / budget)
        rows.append({"call": name, "share_of_budget": dict(zip(map(str, options.budgets), worst))})
        print(f"{name:30s}" + "".join(f"{w:13.2f}×" for w in worst), flush=True)
    return rows


def unseen() -> list[dict]:
    print(f"\n{'unseen size':30s} {'first µs':>9s} {'again µs':>9s} {'on top µs':>10s}")
    rows = []
    for name, make in UNSEEN.items():
        warplap.configure(in_memory=True, budget=1.0)
        make(128)()
        make(127)()  # the first of a bucket's other sizes opens what all of them use
        first, again = [], []
        for n in range(70, 126, 5):
            # Other tensors each time: what memory and threads that had a rest cost is no part of being new.
            first.append(wall(make(n)) * 1e6)
            again.append(statistics.median(wall(make(n)) * 1e6 for _ in range(9)))
        top = statistics.median(f - a for f, a in zip(first, again))
        row = {"call": name, "first_us": statistics.median(first), "again_us": statistics.median(again), "on_top_us": top}
        rows.append(row)
        print(f"{name:30s} {row['first_us']:9.1f} {row['again_us']:9.1f} {top:10.1f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.2, 1.0, 4.0], help="seconds (default 0.2 1 4)")
    parser.add_argument("--runs", type=int, default=3, help="first calls of each, of which the worst counts")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    torch.manual_seed(1)
    print(f"warplap {warplap.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads,")
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    rows = {"budgets": budgets(options), "unseen": unseen()}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
