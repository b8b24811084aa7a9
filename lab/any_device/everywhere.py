"""Random sizes beside torch, met one after another as a program meets them: a fresh store, one process.

    python lab/any_device/everywhere.py [--device cpu|cuda] [--seed 5] [--sizes 24] [--only matmul,norm]
                                        [--budget S] [--rounds 9]

Needs torch and the package. Sizes are log-uniform and drawn from the seed; every operator is asked for all of its sizes
in a random order, and each of them is timed beside torch's own call, in turns, afterwards. What a first call took tells
who was raced in full, raced among a few, or told by its neighbours; ``explain`` says the same.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time

import torch
import torch.nn.functional as F
import warplap

BELOW = 0.97


class Sizes:
    """Draws log-uniform sizes and tensors."""

    def __init__(self, seed, device):
        self.rng, self.device, self.on_gpu = random.Random(seed), device, device == "cuda"
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32

    def one(self, low, high):
        return round(math.exp(self.rng.uniform(math.log(low), math.log(high))))

    def tensor(self, *shape):
        return torch.randn(*shape, device=self.device, dtype=self.dtype)

    def width(self):
        return 4096 if self.on_gpu else 512


def matmul(s):
    m, k = s.one(33, 2048), s.width()
    a, b = s.tensor(m, k), s.tensor(k, k)
    return f"m={m}", lambda: warplap.matmul(a, b), lambda: a @ b


def linear(s):
    m, k = s.one(1, 2048), s.width()
    x, w, bias = s.tensor(m, k), s.tensor(k, k), s.tensor(k)
    return f"m={m}", lambda: warplap.linear(x, w, bias), lambda: F.linear(x, w, bias)


def attention(s):
    n, heads = s.one(33, 4096 if s.on_gpu else 512), 16 if s.on_gpu else 4
    q, k, v = (s.tensor(1, heads, n, 64) for _ in range(3))
    return (
        f"s={n}", lambda: warplap.attention(q, k, v, is_causal=True),
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    )  # fmt: skip


def decode(s):
    n, heads = s.one(33, 16384 if s.on_gpu else 2048), 16 if s.on_gpu else 4
    q, k, v = s.tensor(4, heads, 1, 128), s.tensor(4, heads, n, 128), s.tensor(4, heads, n, 128)
    return f"sk={n}", lambda: warplap.attention(q, k, v), lambda: F.scaled_dot_product_attention(q, k, v)


def norm(s):
    rows, n = s.one(1, 32768 if s.on_gpu else 4096), s.width()
    x, w = s.tensor(rows, n), s.tensor(n)
    return f"rows={rows}", lambda: warplap.norm(x, w), lambda: F.rms_norm(x, (n,), w, 1e-5)


def softmax(s):
    rows, n = s.one(1, 16384 if s.on_gpu else 4096), s.width()
    x = s.tensor(rows, n)
    return f"rows={rows}", lambda: warplap.softmax(x), lambda: x.softmax(-1)


def cross_entropy(s):
    rows, n = s.one(1, 4096 if s.on_gpu else 256), 32000
    x, labels = s.tensor(rows, n), torch.randint(0, n, (rows,), device=s.device)
    return f"rows={rows}", lambda: warplap.cross_entropy(x, labels), lambda: F.cross_entropy(x, labels)


OPERATORS = {f.__name__: f for f in (matmul, linear, attention, decode, norm, softmax, cross_entropy)}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(fn, device, times):
    wait(device)
    started = time.perf_counter()
    for _ in range(times):
        fn()
    wait(device)
    return (time.perf_counter() - started) / times


def recorded(fn, device):
    """On a GPU a CUDA graph of ten calls, so that the GPU is timed; else the call itself."""
    if device != "cuda":
        return fn, 1
    for _ in range(3):
        fn()
    wait(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            fn()
    return graph.replay, 10


def beside(ours, torchs, device, rounds):
    """Medians in microseconds, and the median of the ratios by round."""
    sides = [recorded(fn, device) for fn in (ours, torchs)]
    times = [max(1, round(2e-3 / max(seconds(fn, device, 2), 1e-7))) for fn, _ in sides]
    taken = [[], []]
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            taken[i].append(seconds(sides[i][0], device, times[i]) / sides[i][1] * 1e6)
    ratio = statistics.median(theirs / own for own, theirs in zip(*taken))
    return *(statistics.median(t) for t in taken), ratio


def how(first):
    """What a first call did, by what it took."""
    return "raced" if first > 1.0 else "a few" if first > 0.02 else "told"


def run(name, args):
    sizes = Sizes(f"{args.seed} {name}", args.device)
    drawn = [OPERATORS[name](sizes) for _ in range(args.sizes)]
    firsts, ratios = [], []
    for label, ours, _ in drawn:
        started = time.perf_counter()
        ours()
        wait(args.device)
        firsts.append(time.perf_counter() - started)
    for (label, ours, torchs), first in zip(drawn, firsts):
        own, theirs, ratio = beside(ours, torchs, args.device, args.rounds)
        ratios.append(ratio)
        mark = "  <" if ratio < BELOW else ""
        print(f"{name:14s} {label:12s} {own:10.1f} us  torch {theirs:10.1f} us  {ratio:5.2f}x  "
              f"{how(first):6s} {first:6.2f} s{mark}", flush=True)  # fmt: skip
    return ratios, firsts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--sizes", type=int, default=24)
    parser.add_argument("--only", default=",".join(OPERATORS))
    parser.add_argument("--budget", type=float)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="everywhere-") as folder:
        warplap.configure(store=folder, **({} if args.budget is None else {"budget": args.budget}))
        ratios, firsts = [], []
        with torch.no_grad():
            for name in args.only.split(","):
                results = run(name, args)
                ratios += results[0]
                firsts += results[1]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        kinds = [how(first) for first in firsts]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("raced", "a few", "told"))
        below = sum(ratio < BELOW for ratio in ratios)
        print(f"{len(ratios)} sizes: worst {min(ratios):.2f}x, geometric mean {mean:.2f}x, {below} below {BELOW}")
        print(f"first calls: {counts}, {sum(firsts):.0f} s together")
        warplap.configure(in_memory=True)


if __name__ == "__main__":
    main()
