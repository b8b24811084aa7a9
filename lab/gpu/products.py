"""torch and cuBLASLt on a GPU beside warplap, in one process: captured graphs replayed in alternating rounds, with hot and
cold L2, medians, quartiles and the ratio by round.

    python lab/gpu/products.py [--shapes known,decode,waves] [--clock use] [--rounds 30] [--budget 3] [--only TEXT]
                               [--json FILE]

By the clock `use` every call stands behind a small kernel of neither, whose time is taken off; `chain` is back to back.

Needs torch with CUDA and the package warplap. Every lane is proved right on a poisoned output before it is timed.
"""

import argparse
import json
import math
import platform
import random
import statistics
import sys
import time

import torch
import warplap
from python_calls import graph_of
from rivals import gemm

KNOWN = [
    "m=4096,n=4096,k=4096",
    "m=8192,n=8192,k=8192",
    "m=1024,n=1024,k=1024",
    "m=512,n=512,k=512",
    "m=128,n=4096,k=4096",
    "m=16,n=4096,k=4096",
    "m=1,n=4096,k=4096",
    "m=4096,n=11008,k=4096",
    "m=8192,n=28672,k=8192",
    "m=1000,n=1000,k=1000",
    "m=64,n=11008,k=4096",
    "m=256,n=4096,k=4096",
    "m=32,n=8192,k=8192",
    "m=2560,n=2560,k=2560",
    "m=1536,n=1536,k=1536",
    "m=777,n=333,k=555",
    "m=4096,n=4096,k=64",
    "m=8,n=14336,k=4096",
    "m=512,n=512,k=512,batch=32",
    "m=128,n=128,k=64,batch=64",
]
# Weights of common models, a few rows each.
DECODE = [
    "m=1,n=4096,k=4096",
    "m=16,n=6144,k=4096",
    "m=64,n=4096,k=4096",
    "m=8,n=28672,k=4096",
    "m=32,n=4096,k=14336",
    "m=16,n=11008,k=4096",
    "m=1,n=4096,k=11008",
    "m=64,n=8192,k=8192",
    "m=8,n=10240,k=8192",
    "m=32,n=28672,k=8192",
    "m=16,n=8192,k=28672",
    "m=64,n=5120,k=5120",
]
# Tiles of 128 × 256 or 128 × 128 that fill the chip 1.2 to 1.9 times.
WAVES = ["m=2048,n=2048,k=2048", "m=2304,n=2304,k=2304", "m=2560,n=2560,k=2560", "m=1792,n=2560,k=2048", "m=2048,n=3072,k=2048"]
SHAPES = {"known": KNOWN, "decode": DECODE, "waves": WAVES}
SAMPLE = 300e-6
L2_TURNS = 2


def captured(call, sets, between):
    """Graphs of as many calls as one sample needs, whole turns over the sets of buffers: with the kernel between them, and
    of that kernel alone."""
    for i in range(sets):
        call(i)
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for i in range(8):
        call(i % sets)
    end.record()
    torch.cuda.synchronize()
    once = max(start.elapsed_time(end) / 8e3, 1e-6)
    count = -(-min(512, max(1, math.ceil(SAMPLE / once))) // sets) * sets
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            between()
            call(i % sets)
    return graph, count, graph_of(between, count)


def timed(graph):
    if graph is None:
        return 0.0
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def race(lanes, sets, rounds, clock):
    """Seconds of one call of each lane, round by round."""
    x = torch.zeros(65_536, device="cuda")
    between = (lambda: x.add_(1)) if clock == "use" else (lambda: None)
    between()
    graphs = {name: captured(call, sets, between) for name, call in lanes.items()}
    times = {name: ([], []) for name in lanes}
    for i in range(rounds + 3):
        for name in random.sample(list(lanes), len(lanes)):
            graph, count, alone = graphs[name]
            taken = timed(graph) / count, timed(alone if clock == "use" else None) / count
            if i >= 3:  # The first rounds warm caches and clocks.
                for kept, seconds in zip(times[name], taken):
                    kept.append(seconds)
    return {name: [t - statistics.median(alone) for t in taken] for name, (taken, alone) in times.items()}


def quartiles(xs):
    return [statistics.median(xs)] + [statistics.quantiles(xs, n=4)[i] for i in (0, 2)]


def measure(gpu, problem, cold, args):
    case = gemm.Case(problem)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    sets = min(96, L2_TURNS * l2 // case.bytes() + 2) if cold else 1
    case.make(sets)
    begun = time.perf_counter()
    record = json.loads(gpu.tune(problem, budget=args.budget, cold=cold))
    seconds = time.perf_counter() - begun
    lanes, winner, own = case.lanes(gpu, record, cold)
    for name, call in lanes.items():
        case.prove(name, call)
    times = race(lanes, sets, args.rounds, args.clock)
    row = {
        "problem": problem,
        "cache": "cold" if cold else "hot",
        "winner": winner,
        "best_own": own,
        "tune_s": round(seconds, 2),
        "tb_s": case.bytes() / statistics.median(times["warplap"]) * 1e-12,
        "rounds": args.rounds,
        "sets": sets,
    }
    for name, xs in times.items():
        med, low, high = quartiles(xs)
        row[name] = {"us": med * 1e6, "quartiles_us": [low * 1e6, high * 1e6], "tflops": case.flops() / med * 1e-12}
        for ours in ("warplap", "own"):
            if name not in ("warplap", "own"):
                row[name][f"over_{ours}"] = quartiles([t / w for t, w in zip(xs, times[ours])])
    return row


def shown(row):
    ours, cells = row["warplap"], []
    for rival in ("torch", "cublaslt"):
        ratio = "{:.2f} ({:.2f}–{:.2f})".format(*row[rival]["over_warplap"])
        cells.append(f"{row[rival]['us']:.2f} | **{ratio}**")
    own = "{:.2f}".format(row["cublaslt"]["over_own"][0])
    return (
        f"| `{row['problem']}` | {row['cache']} | `{row['winner']}` | {ours['us']:.2f} | {ours['tflops']:.0f} | {row['tb_s']:.2f} "
        f"| {' | '.join(cells)} | {own} |"
    )


def geomean(rows, rival, ours):
    return math.exp(statistics.fmean(math.log(r[rival][f"over_{ours}"][0]) for r in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of tuning a problem")
    parser.add_argument("--shapes", default="known", help="of known, decode, waves")
    parser.add_argument("--clock", default="use", choices=("use", "chain"))
    parser.add_argument("--dtypes", default="f16,bf16", help="of f16, bf16, tf32, f32")
    parser.add_argument("--caches", default="hot,cold")
    parser.add_argument("--only", default="", help="problems that contain this text")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further problem is begun")
    parser.add_argument("--json", help="also write JSON lines to this file")
    args = parser.parse_args()
    gpu = warplap.Gpu()
    versions = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "warplap": warplap.__version__,
        "python": platform.python_version(),
    }
    print(", ".join(f"{k} {v}" for k, v in versions.items()) + f"; {args.rounds} rounds\n")
    print("| problem | L2 | winner | warplap µs | TFLOP/s | TB/s | torch µs | torch / warplap | cuBLASLt first µs | cuBLASLt / warplap | cuBLASLt / best own |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    out = open(args.json, "w") if args.json else None
    begun, rows = time.monotonic(), []
    # Small ones first: a run that is cut short has seen most of them.
    listed = dict.fromkeys(shape for name in args.shapes.split(",") for shape in SHAPES[name])
    shapes = sorted(listed, key=lambda shape: gemm.Case(f"gemm:{shape},dtype=f16").flops())
    dtypes = [{"tf32": "f32,tf32=true"}.get(d, d) for d in args.dtypes.split(",")]
    for problem in (f"gemm:{s},dtype={d}" for s in shapes for d in dtypes):
        for cold in (c == "cold" for c in args.caches.split(",")):
            if args.only not in problem or time.monotonic() - begun > args.limit:
                continue
            row = measure(gpu, problem, cold, args)
            rows.append(row)
            print(shown(row), flush=True)
            if out:
                out.write(json.dumps({**row, "versions": versions}) + "\n")
                out.flush()
    if rows:
        lowest = min(r["cublaslt"]["over_warplap"][0] for r in rows)
        won = len({r["problem"] for r in rows if not r["winner"].startswith("cublaslt")})
        print(
            f"\n{len(rows)} rows; geometric means: torch / warplap {geomean(rows, 'torch', 'warplap'):.3f}, cuBLASLt / warplap "
            f"{geomean(rows, 'cublaslt', 'warplap'):.3f} (lowest {lowest:.3f}), cuBLASLt / best own {geomean(rows, 'cublaslt', 'own'):.3f}; "
            f"own kernels win {won} problems; {time.monotonic() - begun:.0f} s in all"
        )


if __name__ == "__main__":
    sys.exit(main())
