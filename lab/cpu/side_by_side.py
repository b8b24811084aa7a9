"""Torch on the CPU beside warplap, in one run: short alternating rounds, medians, quartiles and the ratio by round.

    cargo build --release --example 04-side-by-side && python lab/cpu/side_by_side.py [--rounds 40] [--json FILE]

Needs torch and numpy. Threads of both sides sleep while the other one is timed.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

# Idle OpenMP threads must not spin on the cores that the other side is timed on.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("KMP_BLOCKTIME", "0")
import torch  # noqa: E402

from rivals import attention, bsr, gemm  # noqa: E402

PROBLEMS = [
    "gemm:m=256,n=256,k=256,dtype=f32",
    "gemm:m=512,n=512,k=512,dtype=f32",
    "gemm:m=1024,n=1024,k=1024,dtype=f32",
    "gemm:m=2048,n=2048,k=2048,dtype=f32",
    "gemm:m=512,n=512,k=512,dtype=bf16",
    "gemm:m=1024,n=1024,k=1024,dtype=bf16",
    "gemm:m=4096,n=1,k=4096,dtype=f32",
    "attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f32",
    "attention:b=1,h=8,sq=2048,sk=2048,d=64,dtype=f32",
    "attention:b=1,h=16,sq=1024,sk=1024,d=128,dtype=f32",
    "attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f32,causal=true",
    "attention:b=1,h=8,sq=2048,sk=2048,d=64,dtype=bf16",
    "attention:b=1,h=32,hkv=8,sq=1,sk=2048,d=128,dtype=f32",
    "bsr:m=2048,k=2048,n=512,bs=64,density=0.125,dtype=f32",
    "bsr:m=2048,k=2048,n=512,bs=32,density=0.125,dtype=f32",
    "bsr:m=2048,k=2048,n=512,bs=16,density=0.05,dtype=f32",
]

RIVALS = {"gemm": gemm.rivals, "attention": attention.rivals, "bsr": bsr.rivals}
SAMPLE = 2e-3
WORKER = os.path.join(os.path.dirname(__file__), "../../target/release/examples/04-side-by-side")


def fields(problem):
    op, rest = problem.split(":")
    return op, dict(re.findall(r"(\w+)=([^,]+)", rest))


def sample(call, launches):
    start = time.perf_counter()
    for _ in range(launches):
        call()
    return (time.perf_counter() - start) / launches


def quartiles(xs):
    return [statistics.median(xs)] + [statistics.quantiles(xs, n=4)[i] for i in (0, 2)]


def race(problem, rounds):
    op, f = fields(problem)
    worker = subprocess.Popen([WORKER, problem], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    winner, _, flops = worker.stdout.readline().rsplit(" ", 2)
    calls = RIVALS[op](f)
    launches = {}
    for name, call in calls.items():
        call()
        launches[name] = max(1, round(SAMPLE / max(sample(call, 2), 1e-7)))
    times = {name: [] for name in ["warplap", *calls]}
    for i in range(rounds + 3):
        order = list(times)
        if i % 2:
            order.reverse()
        for name in order:
            if name == "warplap":
                worker.stdin.write("\n")
                worker.stdin.flush()
                seconds = float(worker.stdout.readline())
            else:
                seconds = sample(calls[name], launches[name])
            if i >= 3:  # The first rounds warm caches and clocks.
                times[name].append(seconds)
    worker.stdin.close()
    worker.wait()
    flops = float(flops)
    row = {"problem": problem, "winner": winner, "rounds": rounds, "flops": flops}
    for name, xs in times.items():
        med, low, high = quartiles(xs)
        row[name] = {"median_ms": med * 1e3, "quartiles_ms": [low * 1e3, high * 1e3], "gflops": flops / med * 1e-9}
        if name != "warplap":
            row[name]["ratio"] = quartiles([t / w for t, w in zip(xs, times["warplap"])])
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="", help="problems that contain this text")
    parser.add_argument("--json", help="also write JSON lines to this file")
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} cores; torch {torch.__version__}, Python {platform.python_version()}; {args.rounds} rounds\n")
    print("| problem | winner | warplap ms | GFLOP/s | rival | rival ms | GFLOP/s | rival / warplap (quartiles) |")
    print("|---|---|---|---|---|---|---|---|")
    out = open(args.json, "w") if args.json else None
    for problem in (p for p in PROBLEMS if args.only in p):
        row = race(problem, args.rounds)
        ours = row["warplap"]
        for name in [k for k, v in row.items() if isinstance(v, dict) and k != "warplap"]:
            r = row[name]
            ratio = "{:.2f} ({:.2f}–{:.2f})".format(*r["ratio"])
            print(
                f"| `{problem}` | `{row['winner']}` | {ours['median_ms']:.3f} | {ours['gflops']:.0f} "
                f"| {name} | {r['median_ms']:.3f} | {r['gflops']:.0f} | **{ratio}** |",
                flush=True,
            )
        if out:
            out.write(json.dumps({**row, "cpu": cpu, "torch": torch.__version__}) + "\n")
            out.flush()


if __name__ == "__main__":
    sys.exit(main())
