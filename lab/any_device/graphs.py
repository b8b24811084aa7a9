"""Fusion boundaries by measurement beside Inductor and eager: blocks of models, and what a decision costs against having
measured everything.

    python lab/any_device/graphs.py [--device cpu|cuda] [--parts blocks,regret] [--modes max-autotune] [--only TEXT]
                                    [--turns 9] [--budget 4] [--freeze]

Needs torch and the package (a release build), and on the CPU a C++ compiler for Inductor. Blocks: a Llama-like one
(RMSNorm by hand, grouped attention, SwiGLU) forward, a BERT-like one (dropout, LayerNorm, GELU) as a training step; all
sides take turns in random order in one process, and a ratio is the median over the turns. Regret: chains of two to five
operators, of which every legal partition is raced by itself; the share by which fuse's choice is slower than the best.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch
import torch.nn.functional as F
import warplap
from warplap.fusing.plan import Plan
from warplap.fusing.race.forms import Form, Inductor


class Rms(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        h = x.float()
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Llama(torch.nn.Module):
    """A block with grouped heads and a gated layer; rotation is left out."""

    def __init__(self, width, heads, shared, inner):
        super().__init__()
        size = width // heads
        self.heads, self.shared = heads, shared
        self.first, self.second = Rms(width), Rms(width)
        plain = lambda n, k: torch.nn.Linear(n, k, bias=False)
        self.q, self.k, self.v = plain(width, width), plain(width, shared * size), plain(width, shared * size)
        self.o, self.gate, self.up, self.down = (
            plain(width, width), plain(width, inner), plain(width, inner), plain(inner, width)
        )  # fmt: skip

    def forward(self, x):
        b, s, d = x.shape
        h = self.first(x)
        split = lambda t, heads: t.view(b, s, heads, -1).transpose(1, 2)
        q, k, v = split(self.q(h), self.heads), split(self.k(h), self.shared), split(self.v(h), self.shared)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.shared)
        x = x + self.o(o.transpose(1, 2).reshape(b, s, d))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Bert(torch.nn.Module):
    def __init__(self, width, heads, inner, dropout=0.1):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.drop = torch.nn.Dropout(dropout)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, d)
        x = self.first(x + self.drop(self.o(o)))
        return self.second(x + self.drop(self.down(F.gelu(self.up(x)))))


def blocks(device, dtype):
    """Name, module, input, and whether gradients are wanted."""
    make = lambda module: module.to(device, dtype)
    big = device == "cuda"
    width, inner = (4096, 14336) if big else (1024, 2816)
    for rows in (16, 4096) if big else (16, 256):
        block = make(Llama(width, 32 if big else 16, 8 if big else 4, inner)).eval().requires_grad_(False)
        yield f"Llama block, {rows} tokens", block, torch.randn(1, rows, width, device=device, dtype=dtype)
    batch, length, width = (16, 512, 1024) if big else (2, 128, 768)
    x = torch.randn(batch, length, width, device=device, dtype=dtype, requires_grad=True)
    yield f"BERT block, step, {batch}×{length}", make(Bert(width, 16 if big else 12, 4 * width)).train(), x


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def timed(run, device, seconds=0.1):
    """Seconds of one run, by a loop."""
    wait(device)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        run()
        count += 1
    wait(device)
    return (time.perf_counter() - began) / count


def turns(sides, device, count):
    """Everyone's times, in turns of random order."""
    samples = {name: [] for name in sides}
    for _ in range(count):
        for name in random.sample(list(sides), len(sides)):
            samples[name].append(timed(sides[name], device))
    return samples


def ratio(theirs, mine):
    """By how much a side is faster than another, turn by turn: the median, and most of the turns."""
    ratios = sorted(a / b for a, b in zip(theirs, mine))
    tenth = len(ratios) // 10
    return f"**{statistics.median(ratios):.2f}×** ({ratios[tenth]:.2f}–{ratios[-1 - tenth]:.2f})"


def run_blocks(device, dtype, count, modes, only, freeze):
    """Inductor as it is and in every mode, and fuse in the same; each beside its like, and the best beside the best."""
    likes = {"Inductor": None, **{mode: mode for mode in modes}}
    names = ["eager", *likes, *(f"warplap, {like}" for like in likes)]
    heads = [*(f"warplap by {like}" for like in likes), "best by best"]
    print(f"| what, µs | {' | '.join(names + heads)} |\n|{'---|' * (len(names) + len(heads) + 1)}")
    for name, block, x in blocks(device, dtype):
        if only not in name:
            continue
        torch._dynamo.reset()
        fused = {f"warplap, {like}": warplap.fuse(block, mode=mode, freeze=freeze and not block.training) for like, mode in likes.items()}
        made = {"eager": block, **{like: torch.compile(block, mode=mode) for like, mode in likes.items()}, **fused}
        sides = {side: (lambda run=run: whole(run, block, x)) for side, run in made.items()}
        for side, run in sides.items():
            began = time.perf_counter()
            for _ in range(4):  # CUDA graphs are recorded in the third
                run()
            print(f"    {name}: {side} was ready after {time.perf_counter() - began:.0f} s", flush=True)
        samples = turns(sides, device, count)
        middle = {side: statistics.median(times) for side, times in samples.items()}
        best = [min(some, key=middle.get) for some in (["eager", *likes], list(fused))]
        ratios = [ratio(samples[like], samples[f"warplap, {like}"]) for like in likes]
        ratios.append(f"{ratio(samples[best[0]], samples[best[1]])} of {best[0]}")
        print(f"| {name} | {' | '.join([*(f'{middle[side] * 1e6:.0f}' for side in names), *ratios])} |", flush=True)
        for side, run in fused.items():
            print(f"    {side}\n" + "\n".join(f"    {text}" for text in run.explain().splitlines()), flush=True)


def whole(run, block, x):
    """A call, with its gradients where they are wanted."""
    y = run(x)
    if y.requires_grad:
        torch.autograd.grad(y, [x, *block.parameters()], torch.ones_like(y))


def chains(device, dtype):
    """Short chains: name, function, inputs."""
    make = lambda *shape: torch.randn(shape, device=device, dtype=dtype)
    sizes = (16, 4096, 256, 1024) if device == "cuda" else (16, 128, 512, 64)
    width = 4096 if device == "cuda" else 768
    w, gain, bias = make(width, width) * width**-0.5, make(width), make(width)
    fns = {
        "norm → linear": lambda x, r: F.linear(F.rms_norm(x, (width,), gain), w),
        "sum → norm": lambda x, r: (lambda t: (F.rms_norm(t, (width,), gain), t))(x + r),
        "sum → norm → linear": lambda x, r: F.linear(F.layer_norm(x + r, (width,), gain, bias), w, bias),
        "linear → gelu": lambda x, r: F.gelu(F.linear(x, w, bias)),
        "linear → relu → linear": lambda x, r: F.linear(F.relu(F.linear(x, w, bias)), w),
        "linear → sum → norm": lambda x, r: F.layer_norm(F.linear(x, w) + r, (width,), gain, bias),
        "scale → softmax": lambda x, r: torch.softmax(x * 0.1, -1),
        "scale → sum → softmax": lambda x, r: torch.softmax(x * 0.1 + r, -1),
        "norm → gelu": lambda x, r: F.gelu(F.rms_norm(x, (width,), gain)),
        "sum → norm → linear → silu → times": lambda x, r: (
            F.silu(F.linear(F.rms_norm(x + r, (width,), gain), w)) * F.linear(r, w)
        ),
    }
    for rows in sizes:
        for name, fn in fns.items():
            yield f"{name}, {rows}", fn, (make(rows, width), make(rows, width))


def run_regret(device, dtype, count, only):
    """Every legal partition of every chain by itself, and fuse's choice among them."""
    shares, left = [], 0
    print("| chain, µs | choice | took | best | took | regret |\n|---|---|---|---|---|---|")
    for name, fn, inputs in chains(device, dtype):
        if only not in name:
            continue
        torch._dynamo.reset()
        graphs = []
        keep = lambda module, example_inputs: graphs.append((module, example_inputs)) or module.forward
        torch.compile(fn, backend=keep)(*inputs)
        fused = warplap.fuse(fn)
        fused(*inputs)
        (decision,) = fused.decisions
        plan, inductor = Plan(graphs[0][0]), Inductor(None, None)
        forms = [Form(plan, p if p.kinds else None, True, inductor) for p in plan.partitions(None, 64)]
        forms.append(Form(plan, None, False, inductor))
        example_inputs = tuple(graphs[0][1])
        sides = {form.name: (lambda run=form.built(example_inputs): run(*example_inputs)) for form in forms}
        with torch.no_grad():
            for run in sides.values():
                run(), run()
            middle = {side: statistics.median(t) for side, t in turns(sides, device, count).items()}
        kinds = () if decision.winner is None else decision.winner.kinds
        choice = " + ".join(kinds) if kinds else decision.form
        best = min(middle, key=middle.get)
        share = middle[choice] / middle[best] - 1.0
        shares.append(share)
        left += not kinds
        cells = f"{choice} | {middle[choice] * 1e6:.1f} | {best} | {middle[best] * 1e6:.1f}"
        print(f"| {name} | {cells} | {100 * share:.1f} % |", flush=True)
        if share > 0.05:  # what the race saw, and what it was
            others = ", ".join(f"{side} {t * 1e6:.1f}" for side, t in sorted(middle.items(), key=lambda one: one[1]))
            print(f"    after it: {others}\n" + "\n".join(f"    {text}" for text in str(decision).splitlines()), flush=True)
    print(f"\nregret of {len(shares)} chains: median {100 * statistics.median(shares):.1f} %,"
          f" worst {100 * max(shares):.1f} %; nothing covered in {left}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", default="blocks,regret")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--budget", type=float, default=4.0)
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--modes", default="", help="Inductor's, each for one more rival and one more side of ours")
    parser.add_argument("--only", default="", help="blocks and chains whose name has this in it")
    parser.add_argument("--freeze", action="store_true", help="weights stay as they are, of blocks that are not trained")
    args = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    warplap.configure(in_memory=True, budget=args.budget, progress=False)
    dtype = getattr(torch, args.dtype or ("bfloat16" if args.device == "cuda" else "float32"))
    print(f"{args.device}, {dtype}, torch {torch.__version__}, warplap {warplap.__version__}, {torch.get_num_threads()} threads")
    if "blocks" in args.parts:
        run_blocks(args.device, dtype, args.turns, [m for m in args.modes.split(",") if m], args.only, args.freeze)
    if "regret" in args.parts:
        run_regret(args.device, dtype, args.turns, args.only)


if __name__ == "__main__":
    main()
