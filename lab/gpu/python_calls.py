"""What a Python program sees on a GPU: torch's operators and warplap's in one process, interleaved.

    python lab/gpu/python_calls.py [--only host,bsr,attention,triton] [--rounds 15] [--budget 20] [--json FILE]

Device time is that of calls captured in graphs, replayed in alternating rounds; eager time is wall time of calls in a row
with one wait at the end. Medians and quartiles over rounds, ratios by round. Needs torch with CUDA, Triton and the package
warplap. Every lane is proved right first.
"""

import argparse
import json
import math
import platform
import random
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
import warplap
from rivals.attention import SHAPES, tensors
from rivals.bsr import POINTS, matrix
from rivals.triton_kernels import kernels

SAMPLE = 400e-6


def graph_of(call, count):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph


def timed(graph):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def captured(call):
    """A graph of as many calls as one sample needs."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    first = graph_of(call, 4)
    timed(first)
    once = min(timed(first), timed(first)) / 4
    count = min(100, max(2, math.ceil(SAMPLE / once)))
    # Two of them: where a graph's own memory lies is worth a percent, for or against.
    graphs = [graph_of(call, count) for _ in range(2)]
    for graph in graphs:
        timed(graph)
    return graphs, count


def device_race(lanes, rounds):
    """Seconds of one call of each lane, round by round."""
    graphs = {name: captured(call) for name, call in lanes.items()}
    times = {name: [] for name in lanes}
    for i in range(rounds + 3):
        for name in random.sample(list(lanes), len(lanes)):
            pair, count = graphs[name]
            seconds = sum(map(timed, pair)) / len(pair) / count
            if i >= 3:  # The first rounds warm caches and clocks.
                times[name].append(seconds)
    return times


def eager_race(lanes, rounds, calls=100):
    """Wall seconds of one call of each lane, round by round; one wait at the end of each round."""
    times = {name: [] for name in lanes}
    for i in range(rounds + 1):
        for name in random.sample(list(lanes), len(lanes)):
            call = lanes[name]
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            torch.cuda.synchronize()
            if i:
                times[name].append((time.perf_counter() - begun) / calls)
    return times


def host_costs(lanes, passes=20, span=0.03, calls=20):
    """Seconds the host needs for one call of each lane, the least of many short windows: the device has caught up before
    each, and lanes take turns, so that no lane has all its windows while the machine is busy elsewhere."""
    best = dict.fromkeys(lanes, math.inf)
    for _ in range(passes):
        for name, call in lanes.items():
            until = time.perf_counter() + span
            while time.perf_counter() < until:
                torch.cuda.synchronize()
                begun = time.perf_counter()
                for _ in range(calls):
                    call()
                best[name] = min(best[name], (time.perf_counter() - begun) / calls)
    return best


def quartiles(xs):
    return [statistics.median(xs)] + [statistics.quantiles(xs, n=4)[i] for i in (0, 2)]


def us(xs):
    return "{:.2f} ({:.2f}–{:.2f})".format(*(x * 1e6 for x in quartiles(xs)))


def over(theirs, ours):
    return "{:.3f} ({:.3f}–{:.3f})".format(*quartiles([t / o for t, o in zip(theirs, ours)]))


def right(name, got, wanted, share):
    error = ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()
    if not error <= share:
        raise SystemExit(f"{name} is off by {error}")


def host(args, note):
    a, b, c = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    s, d, e = matrix(128, 128, 64, 64, 0.75)
    q = torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16)
    native = warplap._warplap
    lanes = {
        "an empty call": native.mode,
        "choosing: three tensors, key, stream, lookup": lambda: native.matmul_known(a, b, c),
        **({"bsr_matmul(out=) up to its launch": lambda: native.bsr_known(s, d, e)} if hasattr(native, "bsr_known") else {}),
        "bsr_matmul(out=), launch included": lambda: warplap.bsr_matmul(s, d, out=e),
        "torch: s @ d": lambda: s @ d,
        "matmul(out=), launch included": lambda: warplap.matmul(a, b, out=c),
        "torch.mm(out=)": lambda: torch.mm(a, b, out=c),
        "attention": lambda: warplap.attention(q, q, q),
        "torch: scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, q, q),
    }
    for call in lanes.values():
        call()
    print("\n| host cost, least of windows of 20 calls in 20 passes | µs |\n|---|---|")
    for name, seconds in host_costs(lanes).items():
        note({"host": name, "us": seconds * 1e6})
        print(f"| {name} | {seconds * 1e6:.2f} |", flush=True)


def bsr(args, note):
    print("\n| block-sparse | winner | warplap device µs | torch device µs | torch / warplap | warplap eager µs | torch eager µs | torch / warplap |")
    print("|---|---|---|---|---|---|---|---|")
    for m, k, n, bs, density in POINTS:
        a, b, out = matrix(m, k, n, bs, density)
        wanted = (a.to_dense().float() @ b.float())
        begun = time.perf_counter()
        warplap.bsr_matmul(a, b, out=out.fill_(float("nan")))
        seconds = time.perf_counter() - begun
        right("warplap", out, wanted, 2e-3)
        right("torch", a @ b, wanted, 2e-3)
        explanation = warplap.explain(warplap.bsr_matmul, a, b)
        lanes = {"warplap": lambda: warplap.bsr_matmul(a, b, out=out), "torch": lambda: a @ b}
        device, eager = device_race(lanes, args.rounds), eager_race(lanes, args.rounds)
        config = explanation.record["verdict"]["winner"]["config"]
        row = {"bsr": [m, k, n, bs, density], "winner": explanation.variant, "config": config}
        row["tune_s"] = round(seconds, 2)
        trials = {t["variant"]: t for t in explanation.record["trials"] if t.get("measured")}
        row["best_us"] = {v: t["measured"]["median_us"] for v, t in trials.items()}
        row |= {f"device_{name}": [x * 1e6 for x in quartiles(xs)] for name, xs in device.items()}
        row |= {f"eager_{name}": [x * 1e6 for x in quartiles(xs)] for name, xs in eager.items()}
        note(row)
        cells = [f"{m}×{k}×{n} bs {bs} {density:.3g}", f"{explanation.variant} {config}"]
        cells += [us(device["warplap"]), us(device["torch"])]
        cells += [over(device["torch"], device["warplap"]), us(eager["warplap"]), us(eager["torch"])]
        print("| " + " | ".join([*cells, over(eager["torch"], eager["warplap"])]) + " |", flush=True)


def attention(args, note):
    print("\n| attention f16: b,h,sq,sk,d | choice | warplap µs | torch µs | torch / warplap |\n|---|---|---|---|---|")
    ratios = []
    for shape in SHAPES:
        q, k, v, causal = tensors(shape)
        got, wanted = warplap.attention(q, k, v, is_causal=causal), F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        right("warplap", got, wanted, 2e-3)
        explanation = warplap.explain(warplap.attention, q, k, v, is_causal=causal)
        lanes = {
            "warplap": lambda: warplap.attention(q, k, v, is_causal=causal),
            "torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        }
        times = device_race(lanes, args.rounds)
        ratios.append(statistics.median([t / o for t, o in zip(times["torch"], times["warplap"])]))
        text = ",".join(map(str, shape[:5])) + (",causal" if causal else "")
        spread = quartiles([t / o for t, o in zip(times["torch"], times["warplap"])])
        note({"attention": text, "choice": explanation.variant, "ratio": ratios[-1], "spread": spread})
        cells = [us(times["warplap"]), us(times["torch"]), over(times["torch"], times["warplap"])]
        print(f"| {text} | {explanation.variant} | " + " | ".join(cells) + " |", flush=True)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"\nleast {min(ratios):.3f}, geometric mean {mean:.3f}")


def triton(args, note):
    x, y, z = (torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in range(3))
    print("\n| Triton hit path, 8 configs, tuple grid, 13 parameters | µs |\n|---|---|")
    lanes = {}
    for name, kernel in kernels().items():
        call = lambda kernel=kernel: kernel[(4, 4)](x, y, z, 256, 256, 256, 256, 1, 256, 1, 256, 1, 1.0)
        for _ in range(3):
            z.fill_(float("nan"))
            call()
        right(name, z, x.float() @ y.float(), 2e-3)
        lanes[name] = call
    for name, seconds in host_costs(lanes).items():
        note({"triton": name, "us": seconds * 1e6})
        print(f"| {name} | {seconds * 1e6:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="host,bsr,attention,triton")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tuning a problem")
    parser.add_argument("--json", help="also write JSON lines to this file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    warplap.configure(budget=args.budget)
    import triton as triton_package

    versions = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton_package.__version__}
    versions |= {"warplap": warplap.__version__, "python": platform.python_version()}
    print(", ".join(f"{k} {v}" for k, v in versions.items()) + f"; {args.rounds} rounds")
    out = open(args.json, "w") if args.json else None

    def note(row):
        if out:
            out.write(json.dumps({**row, "versions": versions}) + "\n")
            out.flush()

    for part in args.only.split(","):
        begun = time.monotonic()
        {"host": host, "bsr": bsr, "attention": attention, "triton": triton}[part](args, note)
        print(f"({part}: {time.monotonic() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
