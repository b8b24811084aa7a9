"""What a user sees on the CPU: thirty calls of warplap beside torch's own, by torch's own stopwatch.

    python lab/cpu/use.py [--runs 5] [--only matmul] [--json FILE]     thirty problems, a fresh store for each
    python lab/cpu/use.py --shared                                     ten calls alone and behind a parallel operation

Needs torch and the package (a release build). Both sides are timed in turns by `torch.utils.benchmark.Timer`, one
statement each; a figure is the median of the runs, and a run's is the median over the turns of torch's time over ours.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import warnings

import torch
import torch.nn.functional as F
from torch.utils.benchmark import Timer

import warplap

warnings.filterwarnings("ignore", message="Sparse")

TURNS = 15
"""Turns of both sides in one run."""
SECONDS = 0.08
"""What one side is timed for in one turn."""


def product(m: int, n: int, k: int, dtype: torch.dtype = torch.float32):
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    return lambda: warplap.matmul(a, b), lambda: a @ b


def layer(rows: int, k: int, n: int, dtype: torch.dtype = torch.float32, bias: bool = True):
    x, w = torch.randn(rows, k).to(dtype), torch.randn(n, k).to(dtype)
    b = torch.randn(n).to(dtype) if bias else None
    return lambda: warplap.linear(x, w, b), lambda: F.linear(x, w, b)


def attended(b: int, h: int, s: int, d: int, causal: bool = False, dtype: torch.dtype = torch.float32):
    q, k, v = (torch.randn(b, h, s, d).to(dtype) for _ in range(3))
    return (
        lambda: warplap.attention(q, k, v, is_causal=causal),
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
    )


def sparse(m: int, k: int, n: int, bs: int, density: float):
    keep = torch.rand(m // bs, k // bs) < density
    dense = torch.randn(m, k) * keep.repeat_interleave(bs, 0).repeat_interleave(bs, 1)
    a, b = dense.to_sparse_bsr((bs, bs)), torch.randn(k, n)
    return lambda: warplap.bsr_matmul(a, b), lambda: a @ b


BF16 = torch.bfloat16
PROBLEMS = {
    "matmul 32³": lambda: product(32, 32, 32),
    "matmul 48³": lambda: product(48, 48, 48),
    "matmul 64³": lambda: product(64, 64, 64),
    "matmul 96³": lambda: product(96, 96, 96),
    "matmul 128³": lambda: product(128, 128, 128),
    "matmul 200³": lambda: product(200, 200, 200),
    "matmul 256³": lambda: product(256, 256, 256),
    "matmul 384³": lambda: product(384, 384, 384),
    "matmul 512³": lambda: product(512, 512, 512),
    "matmul 1024³": lambda: product(1024, 1024, 1024),
    "matmul 2048³": lambda: product(2048, 2048, 2048),
    "matmul 1×1024×1024": lambda: product(1, 1024, 1024),
    "matmul 16×1024×1024": lambda: product(16, 1024, 1024),
    "matmul 100×300×77": lambda: product(100, 300, 77),
    "matmul 256³ bf16": lambda: product(256, 256, 256, BF16),
    "matmul 1024³ bf16": lambda: product(1024, 1024, 1024, BF16),
    "linear 1×768→3072": lambda: layer(1, 768, 3072),
    "linear 8×512→512": lambda: layer(8, 512, 512),
    "linear 33×768→768": lambda: layer(33, 768, 768),
    "linear 256×512→2048": lambda: layer(256, 512, 2048),
    "linear 64×256→64 no bias": lambda: layer(64, 256, 64, bias=False),
    "linear 128×768→768 bf16": lambda: layer(128, 768, 768, BF16),
    "attention 1×4×128×64 causal": lambda: attended(1, 4, 128, 64, causal=True),
    "attention 1×8×256×64": lambda: attended(1, 8, 256, 64),
    "attention 1×8×512×64 causal": lambda: attended(1, 8, 512, 64, causal=True),
    "attention 2×8×1024×64": lambda: attended(2, 8, 1024, 64),
    "attention 1×12×77×64": lambda: attended(1, 12, 77, 64),
    "bsr 512×512×64 bs 32 20 %": lambda: sparse(512, 512, 64, 32, 0.2),
    "bsr 1024×1024×256 bs 32 12 %": lambda: sparse(1024, 1024, 256, 32, 0.125),
    "bsr 2048×2048×128 bs 64 10 %": lambda: sparse(2048, 2048, 128, 64, 0.1),
}

SHARED = {
    "matmul 200³": lambda: product(200, 200, 200),
    "matmul 256³": lambda: product(256, 256, 256),
    "matmul 512³": lambda: product(512, 512, 512),
    "attention 1×8×256×64": lambda: attended(1, 8, 256, 64),
    "bsr 1024×1024×256 bs 32 12 %": lambda: sparse(1024, 1024, 256, 32, 0.125),
}


def seconds(call) -> float:
    return Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads()).blocked_autorange(
        min_run_time=SECONDS
    ).median  # fmt: skip


def one_run(make) -> dict:
    """A fresh store, the first call, and turns of both sides."""
    warplap.configure(in_memory=True)
    ours, theirs = make()
    ours()
    turns = []
    for turn in range(TURNS):
        sides = (ours, theirs) if turn % 2 else (theirs, ours)
        first, second = seconds(sides[0]), seconds(sides[1])
        turns.append((first, second) if turn % 2 else (second, first))
    ratio = statistics.median(theirs / ours for ours, theirs in turns)
    return {
        "ours_us": statistics.median(t[0] for t in turns) * 1e6,
        "torch_us": statistics.median(t[1] for t in turns) * 1e6,
        "ratio": ratio,
    }


def beside_torch(options) -> list[dict]:
    chosen = {n: m for n, m in PROBLEMS.items() if not options.only or options.only in n}
    results = {name: [] for name in chosen}
    for run in range(options.runs):
        for name, make in chosen.items():
            results[name].append(one_run(make))
            print(f"  run {run + 1}: {name:30s} {results[name][-1]['ratio']:.2f}×", flush=True)
    rows = []
    for name, runs in results.items():
        ratios = sorted(r["ratio"] for r in runs)
        row = {"problem": name, "ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
        row |= {side: statistics.median(r[side] for r in runs) for side in ("ours_us", "torch_us")}
        rows.append(row)
    print(f"\n{'problem':30s} {'warplap µs':>11s} {'torch µs':>11s} {'ratio':>7s}   least … most")
    for r in rows:
        print(
            f"{r['problem']:30s} {r['ours_us']:11.1f} {r['torch_us']:11.1f} {r['ratio']:6.2f}×"
            f"   {r['least']:.2f} … {r['most']:.2f}"
        )
    mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in rows))
    good = sum(r["ratio"] >= 0.98 for r in rows)
    print(f"\n{good} of {len(rows)} at 0.98× or more; geometric mean {mean:.2f}×")
    return rows


def behind_parallel_work(options) -> list[dict]:
    """Medians of single calls: in a loop of their own, and each behind a parallel operation of torch's."""
    import time

    x = torch.randn(1 << 20)
    rows = []
    for name, make in SHARED.items():
        warplap.configure(in_memory=True)
        ours, theirs = make()
        ours()

        def median(call, before) -> float:
            times = []
            for _ in range(60):
                if before:
                    x.add_(1.0)
                else:
                    call()
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            return statistics.median(times) * 1e6

        pairs = {side: [(median(c, False), median(c, True)) for _ in range(7)] for side, c in
                 (("warplap", ours), ("torch", theirs))}  # fmt: skip
        for side, samples in pairs.items():
            row = {"problem": name, "side": side, "alone_us": statistics.median(p[0] for p in samples)}
            row |= {"behind_us": statistics.median(p[1] for p in samples)}
            row |= {"ratio": statistics.median(p[1] / p[0] for p in samples)}
            rows.append(row)
    print(f"{'problem':30s} {'side':8s} {'alone µs':>9s} {'behind µs':>10s} {'ratio':>6s}")
    for r in rows:
        print(f"{r['problem']:30s} {r['side']:8s} {r['alone_us']:9.1f} {r['behind_us']:10.1f} {r['ratio']:6.2f}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="fresh stores for each problem (default 5)")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--shared", action="store_true", help="calls alone and behind a parallel operation of torch")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    torch.manual_seed(1)
    print(f"warplap {warplap.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads,")
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    rows = behind_parallel_work(options) if options.shared else beside_torch(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
