"""Parts of a model on a GPU as programs call them: norms, linear layers with a bias, and attention with its gradients,
each beside torch's own and, where it fuses, torch.compile's. Every lane is proved right first.

    python lab/gpu/layers.py [--only norm,linear,training] [--rounds 15] [--budget 20]

Device time is that of calls captured in graphs, replayed in alternating rounds; a training step is timed by events around
one step after another, with torch's caches warm, and its peak memory is torch's count above the inputs. Medians (quartiles).
"""

import argparse
import sys
import warnings

import torch
import torch.nn.functional as F
import warplap
from python_calls import device_race, over, right, us

NORMS = [("rms", 4096, 4096), ("layer", 4096, 4096), ("rms", 16, 4096), ("rms", 8192, 8192)]
LINEARS = [(1, 4096, 4096), (64, 4096, 4096), (512, 1024, 4096), (4096, 4096, 4096)]
STEPS = [(2, 16, 4096, 128, True), (2, 16, 4096, 128, False), (4, 16, 2048, 64, False), (1, 16, 8192, 128, True)]


def drawn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def norm(args):
    print("\n| norm, bf16, with a residual | winner | warplap µs | torch µs | torch.compile µs | compile / warplap |")
    print("|---|---|---|---|---|---|")
    for kind, rows, n in NORMS:
        x, residual, weight = drawn(rows, n), drawn(rows, n), drawn(n)
        own = F.rms_norm if kind == "rms" else F.layer_norm

        def torchs(x, residual, weight):
            total = x + residual
            return own(total, (n,), weight), total

        compiled = torch.compile(torchs, dynamic=False)
        ours = lambda: warplap.norm(x, weight, residual=residual, kind=kind)
        wanted = torchs(x.double(), residual.double(), weight.double())
        for name, got in (("warplap", ours()), ("torch.compile", compiled(x, residual, weight))):
            for g, w in zip(got, wanted):
                right(name, g, w, 8e-3)
        explanation = warplap.explain(warplap.norm, x, weight, residual=residual, kind=kind)
        lanes = {"warplap": ours, "torch": lambda: torchs(x, residual, weight)}
        times = device_race({**lanes, "compile": lambda: compiled(x, residual, weight)}, args.rounds)
        cells = [f"{kind} {rows}×{n}", explanation.variant, *(us(times[lane]) for lane in ("warplap", "torch", "compile"))]
        print("| " + " | ".join([*cells, over(times["compile"], times["warplap"])]) + " |", flush=True)


def linear(args):
    print("\n| linear with a bias, bf16: m, k, n | winner | warplap µs | torch µs | torch / warplap |")
    print("|---|---|---|---|---|")
    for m, k, n in LINEARS:
        x, w, bias = drawn(m, k), drawn(n, k), drawn(n)
        right("warplap", warplap.linear(x, w, bias), F.linear(x.double(), w.double(), bias.double()), 8e-3)
        explanation = warplap.explain(warplap.linear, x, w, bias)
        lanes = {"warplap": lambda: warplap.linear(x, w, bias), "torch": lambda: F.linear(x, w, bias)}
        times = device_race(lanes, args.rounds)
        cells = [f"{m}, {k}, {n}", explanation.variant, us(times["warplap"]), us(times["torch"])]
        print("| " + " | ".join([*cells, over(times["torch"], times["warplap"])]) + " |", flush=True)


def step(attend, inputs, weight):
    for t in inputs:
        t.grad = None
    (attend(*inputs) * weight).sum().backward()


def training(args):
    print("\n| attention, a training step, bf16: b, h, s, d | winner | warplap µs | torch µs | torch / warplap | peak MiB |")
    print("|---|---|---|---|---|---|")
    for b, h, s, d, causal in STEPS:
        inputs, weight = [drawn(b, h, s, d).requires_grad_() for _ in "qkv"], drawn(b, h, s, d)
        lanes = {
            "warplap": lambda q, k, v: warplap.attention(q, k, v, is_causal=causal),
            "torch": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        }
        grads, times, peaks = {}, {name: [] for name in lanes}, {}
        for name, attend in lanes.items():
            step(attend, inputs, weight)
            grads[name] = [t.grad for t in inputs]
            torch.cuda.synchronize()
            for t in inputs:
                t.grad = None
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step(attend, inputs, weight)
            peaks[name] = (torch.cuda.max_memory_allocated() - before) >> 20
        for mine, theirs in zip(grads["warplap"], grads["torch"]):
            right("gradients", mine, theirs, 1e-2)
        for _ in range(args.rounds):
            for name, attend in lanes.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(4):
                    step(attend, inputs, weight)
                end.record()
                torch.cuda.synchronize()
                times[name].append(start.elapsed_time(end) / 4e3)
        explanation = warplap.explain(warplap.attention, *(t.detach() for t in inputs), is_causal=causal)
        cells = [f"{b}, {h}, {s}, {d}{' causal' if causal else ''}", explanation.variant, us(times["warplap"])]
        cells += [us(times["torch"]), over(times["torch"], times["warplap"]), f"{peaks['warplap']} / {peaks['torch']}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="norm,linear,training")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tuning a problem")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    warplap.configure(budget=args.budget)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, warplap {warplap.__version__}; {args.rounds} rounds")
    for part in args.only.split(","):
        {"norm": norm, "linear": linear, "training": training}[part](args)


if __name__ == "__main__":
    sys.exit(main())
