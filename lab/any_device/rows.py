"""Norms with a residual, softmax, cross entropy and gated layers beside torch and torch.compile, by the calls that
programs make.

    python lab/any_device/rows.py [--device cpu|cuda] [--turns 9] [--budget 3] [--only swiglu]

Needs torch and the package (a release build); torch.compile needs a C++ compiler on the CPU. All sides take turns in
random order on the same inputs, and every answer is held to double precision first. On the CPU a call is timed in a loop
of 50 ms; on a GPU it is captured behind a neutral kernel, whose own time is taken off. A ratio is the median over the
turns of the best rival's time by ours; the spread is that of the ratio.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time

import torch
import torch.nn.functional as F
import warplap

CPU = [
    ("residual+rms", 512, 4096, torch.float32),
    ("residual+rms", 512, 4096, torch.bfloat16),
    ("residual+rms", 16, 4096, torch.bfloat16),
    ("residual+layer", 2048, 1024, torch.float32),
    ("residual+layer", 2048, 1024, torch.bfloat16),
    ("softmax", 1024, 4096, torch.float32),
    ("softmax", 1024, 4096, torch.bfloat16),
    ("softmax, scale, mask", 4096, 512, torch.float32),
    ("cross entropy", 128, 32000, torch.float32),
    ("cross entropy", 128, 32000, torch.bfloat16),
    ("cross entropy and gradient", 128, 32000, torch.float32),
    ("cross entropy and gradient", 128, 32000, torch.bfloat16),
    *(("swiglu of 1024", rows, 2816, dtype) for rows in (1, 16, 256) for dtype in (torch.float32, torch.bfloat16)),
]
CUDA = [
    *(("residual+rms", rows, 4096, torch.bfloat16) for rows in (1, 16, 256, 8192)),
    ("residual+rms", 8192, 8192, torch.bfloat16),
    ("residual+layer", 8192, 4096, torch.bfloat16),
    ("softmax", 4096, 4096, torch.bfloat16),
    ("softmax, scale, mask", 65536, 512, torch.bfloat16),
    ("cross entropy", 4096, 128256, torch.bfloat16),
    ("cross entropy and gradient", 4096, 128256, torch.bfloat16),
    ("cross entropy and gradient", 8192, 32000, torch.bfloat16),
]


def sides(what, rows, n, dtype, device):
    """The two functions of a line, ours and torch's, their inputs, and the right answer."""
    make = lambda *shape: torch.randn(shape, device=device).to(dtype)
    if what.startswith("residual"):
        x, r, w = make(rows, n), make(rows, n), make(n)
        if what.endswith("rms"):
            ours = lambda x, r, w: warplap.norm(x, w, residual=r, eps=1e-6)
            theirs = lambda x, r, w: (F.rms_norm(x + r, (n,), w, 1e-6), x + r)
        else:
            ours = lambda x, r, w: warplap.norm(x, w, residual=r, kind="layer")
            theirs = lambda x, r, w: (F.layer_norm(x + r, (n,), w), x + r)
        return ours, theirs, (x, r, w)
    if what.startswith("swiglu"):
        k = int(what.rpartition(" ")[2])
        theirs = lambda x, gate, up: F.silu(F.linear(x, gate)) * F.linear(x, up)
        return warplap.gated_linear, theirs, (make(rows, k), *(make(n, k) * k**-0.5 for _ in range(2)))
    if what == "softmax":
        return warplap.softmax, lambda x: torch.softmax(x, -1), (make(rows, n),)
    if what.startswith("softmax"):
        ours = lambda x, m: warplap.softmax(x, m, scale=0.125)
        return ours, lambda x, m: torch.softmax(x * 0.125 + m, -1), (make(rows // n, n, n), make(n, n))
    x, labels = make(rows, n), torch.randint(0, n, (rows,), device=device)
    if what == "cross entropy":
        return warplap.cross_entropy, lambda x, y: F.cross_entropy(x.float(), y), (x, labels)
    mine = f"cross_entropy:rows={rows},n={n},dtype={ {torch.float32: 'f32', torch.bfloat16: 'bf16'}[dtype] },grad=true"
    out = [torch.empty(size, device=device) for size in (rows, rows, 1)]
    own = x.clone()

    def ours(x, y):
        warplap.run(mine, {"logits": own, "labels": y, "loss": out[0], "lse": out[1], "total": out[2]})
        return out[2], own

    def theirs(x, y):
        gradient, loss = torch.func.grad_and_value(lambda x: F.cross_entropy(x.float(), y))(x)
        return loss, gradient

    return ours, theirs, (x, labels)


def agree(got, right, what):
    for a, b in zip(*((t if isinstance(t, tuple) else (t,)) for t in (got, right))):
        off = (a.double().reshape(-1) - b.double().reshape(-1)).norm() / b.double().norm()
        assert off < 1e-2, f"{what}: off by {off:.1e}"


def on_cpu(call):
    call()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < 0.05:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls * 1e6


class Captured:
    """A call behind a neutral kernel, many times in a graph."""

    def __init__(self, call, neutral):
        for _ in range(3):
            neutral(), call()
        torch.cuda.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record(), call(), call(), events[1].record()
        torch.cuda.synchronize()
        self.count = min(40, max(3, math.ceil(0.4 / max(events[0].elapsed_time(events[1]) / 2, 1e-3))))
        self.graph, self.events = torch.cuda.CUDAGraph(), events
        with torch.cuda.graph(self.graph):
            for _ in range(self.count):
                neutral()
                call()

    def __call__(self):
        self.events[0].record(), self.graph.replay(), self.events[1].record()
        torch.cuda.synchronize()
        return self.events[0].elapsed_time(self.events[1]) * 1e3 / self.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--budget", type=float, default=3.0)
    parser.add_argument("--only", default="", help="lines whose names begin so")
    asked = parser.parse_args()
    warplap.configure(in_memory=True, budget=asked.budget)
    torch.manual_seed(0)
    print(f"warplap {warplap.__version__}, torch {torch.__version__}, {asked.device}, {torch.get_num_threads()} threads")
    print(f"{'chain':28s} {'rows×n':>12s} {'type':9s} {'warplap µs':>11s} {'eager':>10s} {'compiled':>10s} {'ratio':>6s}   spread")
    ratios = []
    for what, rows, n, dtype in CUDA if asked.device == "cuda" else CPU:
        if not what.startswith(asked.only):
            continue
        ours, theirs, inputs = sides(what, rows, n, dtype, asked.device)
        torch._dynamo.reset()
        compiled = torch.compile(theirs)
        large = rows * n > 1 << 27
        agree(ours(*inputs), (compiled if large else theirs)(*inputs), what)
        calls = {"warplap": lambda: ours(*inputs), "eager": lambda: theirs(*inputs)}
        calls["compiled"] = lambda: compiled(*inputs)
        if large:  # eager would keep several copies in float32
            del calls["eager"]
        if asked.device == "cuda":
            kept = torch.zeros(1 << 16, device="cuda")
            neutral = lambda: kept.add_(1.0)
            clocks = {name: Captured(call, neutral) for name, call in calls.items()}
            clocks["neutral"] = Captured(lambda: None, neutral)
        else:
            clocks = {name: (lambda call=call: on_cpu(call)) for name, call in calls.items()}
        times = {name: [] for name in clocks}
        for turn in range(asked.turns + 1):
            for name in random.sample(list(clocks), len(clocks)):
                took = clocks[name]()
                if turn:
                    times[name].append(took)
        idle = statistics.median(times.pop("neutral", [0.0]))
        median = {name: statistics.median(took) - idle for name, took in times.items()}
        each = [min(took[1:]) / took[0] for took in zip(*([t - idle for t in took] for took in times.values()))]
        ratio = statistics.median(each)
        ratios.append(ratio)
        shown = [f"{median[name]:.1f}" if name in median else "–" for name in ("warplap", "eager", "compiled")]
        kind = str(dtype).removeprefix("torch.")
        print(f"{what:28s} {f'{rows}×{n}':>12s} {kind:9s} {shown[0]:>11s} {shown[1]:>10s} {shown[2]:>10s} {ratio:5.2f}×   {min(each):.2f} … {max(each):.2f}", flush=True)
        del calls, clocks, inputs, ours, theirs
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}×, least {min(ratios):.2f}×")


if __name__ == "__main__":
    main()
