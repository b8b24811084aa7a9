"""Block-sparse products on a GPU where warplap was or is behind, through its Python call, beside every rival in one run.

    python lab/gpu/bsr_points.py [--only TEXT] [--rounds 9] [--budget 10] [--json FILE]

Each point is tuned with a store of its own. Rivals: torch's Triton kernel with its tile, stages and warps searched here,
cuSPARSE's Blocked-ELL (the matrix written out before, not counted), cuSPARSE's BSR, cuBLAS on the filled matrix. All are
captured in graphs and replayed in random rounds, every call behind a small kernel of neither, whose time is taken off.
Medians in µs. Every answer is proved first; Triton's settings that are wrong or do not run are left out.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import warnings

import torch
import warplap
from rivals.bsr_kernels import Matrix
from use import both_clocks

HALF, BRAIN = torch.float16, torch.bfloat16
# What was behind, with what it must reach; then few columns, as in decoding.
POINTS = [
    ("4096×11008×300", (4096, 11008, 300, 64, 0.15), dict(dtype=HALF), 1.5),
    ("8192×8192×64", (8192, 8192, 64, 32, 0.05), dict(dtype=BRAIN), 1.1),
    ("4096³", (4096, 4096, 4096, 16, 0.5), dict(dtype=HALF), 1.0),
    ("4096³", (4096, 4096, 4096, 16, 0.03), dict(dtype=HALF), 1.15),
    ("4096³", (4096, 4096, 4096, 16, 0.01), dict(dtype=HALF), 1.15),
    ("4096³ tf32", (4096, 4096, 4096, 16, 0.125), dict(dtype=torch.float32, pattern="tf32"), 1.1),
    ("5120×5120×1024", (5120, 5120, 1024, 64, 0.2), dict(dtype=BRAIN), 1.2),
    ("4096³", (4096, 4096, 4096, 64, 0.125), dict(dtype=HALF), 1.2),
]
THIN = [(16, 0.05, 8), (16, 0.25, 16), (32, 0.05, 1), (32, 0.125, 16), (32, 0.25, 64), (64, 0.05, 64), (64, 0.125, 1), (64, 0.25, 8)]
POINTS += [(f"4096×4096×{n} thin", (4096, 4096, n, bs, share), dict(dtype=BRAIN), 1.0) for bs, share, n in THIN]


def ours(s):
    a = torch.sparse_bsr_tensor(s.row_ptr, s.col_idx, s.values, size=(s.m, s.k))
    out = s.poisoned()
    call = lambda: warplap.bsr_matmul(a, s.b, out=out)
    call()
    limit = 1e-3 if s.dtype == HALF else 8e-3 if s.dtype == BRAIN else 2e-3
    if not s.error(out) < limit:
        raise SystemExit(f"warplap is wrong: relative error {s.error(out)}")
    return call, warplap.explain(warplap.bsr_matmul, a, s.b)


def runnable(others):
    """Those that run at all: a setting may not fit the chip or the shape."""
    kept = {}
    for name, call in others.items():
        try:
            call()
            torch.cuda.synchronize()
        except Exception:
            continue
        kept[name] = call
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="points whose name holds this text")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of tuning a point")
    parser.add_argument("--json", type=argparse.FileType("w"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, "warplap", warplap.__version__)
    print("| point | winner | warplap µs | best rival | µs | rival / warplap | must be | others |\n|---|---|---|---|---|---|---|---|")
    ratios = {}
    for size, sizes, how, wanted in POINTS:
        name = f"{size} bs {sizes[3]}, {100 * sizes[4]:g} % {str(how['dtype']).split('.')[1]}"
        if args.only not in name:
            continue
        warplap.configure(store=tempfile.mkdtemp(dir=os.path.expanduser("~")), budget=args.budget)
        s = Matrix(*sizes, **how)
        call, explanation = ours(s)
        times = both_clocks({"warplap": call} | runnable(s.rivals()), args.rounds)[0]
        middle = {who: statistics.median(taken) * 1e6 for who, taken in times.items()}
        own = middle.pop("warplap")
        best = min(middle, key=middle.get)
        ratio = statistics.median([r / o for r, o in zip(times[best], times["warplap"])])
        ratios.setdefault("thin" in name, []).append(ratio)
        config = explanation.record["verdict"]["winner"]["config"]
        winner = f"{explanation.variant}[{','.join(f'{k}={v}' for k, v in config.items())}]"
        # Of Triton's settings the best is enough.
        kinds = {who.split(" tile=")[0]: us for who, us in sorted(middle.items(), key=lambda x: -x[1])}
        kinds.pop(best.split(" tile=")[0])
        others = ", ".join(f"{who} {us:.1f}" for who, us in sorted(kinds.items(), key=lambda x: x[1]))
        print(f"| {name} | `{winner}` | {own:.2f} | {best} | {middle[best]:.2f} | **{ratio:.2f}** | {wanted:g} | {others} |", flush=True)
        if args.json:
            raced = {}
            for trial in explanation.record["trials"]:
                took = trial.get("measured") or (trial.get("rejected") or {}).get("measurement") or {}
                raced[trial["variant"]] = min(raced.get(trial["variant"], math.inf), took.get("median_us", math.inf))
            args.json.write(json.dumps({"point": name, "winner": winner, "us": own, "rivals": middle, "raced": raced}) + "\n")
            args.json.flush()
        torch.cuda.empty_cache()
    for thin, values in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, values)))
        print(f"\n{'few columns' if thin else 'points'}: least {min(values):.2f}, geometric mean {mean:.2f}")


if __name__ == "__main__":
    sys.exit(main())
