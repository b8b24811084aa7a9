"""Thirty problems on a GPU as a program meets them: warplap's operators beside torch's own, by two clocks.

    python lab/gpu/use.py [--only matmul,linear,attention,bsr,norm] [--part I/N] [--rounds 15] [--budget 20]
                          [--clock use] [--json FILE]

Each problem is tuned with a store of its own. Then both sides are captured in graphs and replayed in alternating rounds:
*in use*, every call behind a small kernel of neither (`x.add_(1)` on 65,536 floats, whose own time is taken off), and *back
to back*, every call behind itself, where kernels that may begin early overlap with themselves. A kernel that idles keeps the
device busy while the host queues a sample. Medians (quartiles) over rounds, ratios by round. Every answer is proved first.
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.nn.functional as F
import warplap
from python_calls import graph_of, over, quartiles, right, us
from rivals.bsr import matrix

SAMPLE = 400e-6
HALVES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}

MATMULS = [("f16", s, s, s) for s in (512, 1024, 2048, 4096)] + [("bf16", s, s, s) for s in (4096, 8192)]
MATMULS += [("f16", 1, 4096, 4096), ("bf16", 16, 4096, 4096), ("bf16", 128, 4096, 4096)]
MATMULS += [("f32", s, s, s) for s in (512, 1024, 2048, 4096)]
LINEARS = [("bf16", 1, 4096, 4096, None), ("bf16", 64, 4096, 4096, "relu"), ("f16", 512, 1024, 4096, "gelu")]
LINEARS += [("bf16", 4096, 4096, 4096, "gelu")]
# Type, batch, heads, heads of keys, queries, keys, width, causal.
ATTENTIONS = [
    ("bf16", 2, 16, 16, 4096, 4096, 128, False),
    ("bf16", 2, 16, 16, 4096, 4096, 128, True),
    ("bf16", 2, 16, 16, 4096, 4096, 64, False),
    ("bf16", 1, 16, 16, 16384, 16384, 128, True),
    ("f16", 1, 32, 32, 1024, 1024, 128, True),
    ("f16", 8, 12, 12, 197, 197, 64, False),
    ("bf16", 2, 32, 8, 2048, 2048, 128, True),
    ("bf16", 8, 32, 8, 1, 4096, 128, False),
    ("f16", 1, 32, 32, 1, 16384, 128, False),
]
BLOCKS = [(4096, 4096, 4096, 64, 0.125), (4096, 4096, 256, 64, 0.125)]
NORMS = [("rms", 4096, 4096), ("layer", 16, 4096)]


def drawn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def problems(only):
    """Name, tolerance, operator with its arguments, torch's call, the right answer."""
    if "matmul" in only:
        for dtype, m, n, k in MATMULS:

            def product(dtype=dtype, m=m, n=n, k=k):
                a, b = drawn(m, k, dtype=HALVES[dtype]), drawn(k, n, dtype=HALVES[dtype])
                c, d = (a.new_empty(m, n) for _ in range(2))
                call = lambda: warplap.matmul(a, b, out=c)
                return (warplap.matmul, a, b, {"out": c}), call, lambda: torch.mm(a, b, out=d), lambda: a.double() @ b.double()

            yield f"matmul {dtype} {m}×{n}×{k}", 8e-3, product
    if "linear" in only:
        for dtype, m, k, n, act in LINEARS:

            def layer(dtype=dtype, m=m, k=k, n=n, act=act):
                x, w, bias = drawn(m, k, dtype=HALVES[dtype]), drawn(n, k, dtype=HALVES[dtype]), drawn(n, dtype=HALVES[dtype])
                bend = getattr(F, act) if act else (lambda y: y)
                wide = lambda: bend(F.linear(x.double(), w.double(), bias.double()))
                call = lambda: warplap.linear(x, w, bias, act)
                return (warplap.linear, x, w, bias, act), call, lambda: bend(F.linear(x, w, bias)), wide

            yield f"linear {dtype} {m}×{k}→{n}" + (f" {act}" if act else ""), 8e-3, layer
    if "attention" in only:
        for dtype, b, h, hkv, sq, sk, d, causal in ATTENTIONS:

            def attend(dtype=dtype, b=b, h=h, hkv=hkv, sq=sq, sk=sk, d=d, causal=causal):
                q = drawn(b, h, sq, d, dtype=HALVES[dtype])
                k, v = (drawn(b, hkv, sk, d, dtype=HALVES[dtype]) for _ in range(2))
                how = {"is_causal": causal, "enable_gqa": h != hkv}
                torchs = lambda: F.scaled_dot_product_attention(q, k, v, **how)
                # In float32, one batch of heads after the other, so that memory holds the scores.
                wide = lambda: torch.cat([exact(q[i : i + 1], k[i : i + 1], v[i : i + 1], causal) for i in range(b)])
                return (warplap.attention, q, k, v, how), lambda: warplap.attention(q, k, v, **how), torchs, wide

            heads = f"{h}" if h == hkv else f"{h}/{hkv}"
            yield f"attention {dtype} {b}×{heads}×{sq}×{sk}×{d}" + (" causal" if causal else ""), 1e-2, attend
    if "bsr" in only:
        for m, k, n, bs, density in BLOCKS:

            def blocks(m=m, k=k, n=n, bs=bs, density=density):
                a, b, out = matrix(m, k, n, bs, density)
                call = lambda: warplap.bsr_matmul(a, b, out=out)
                return (warplap.bsr_matmul, a, b, {"out": out}), call, lambda: a @ b, lambda: a.to_dense().double() @ b.double()

            yield f"bsr f16 {m}×{k}×{n} blocks {bs}, {density:.3g}", 8e-3, blocks
    if "norm" in only:
        for kind, rows, n in NORMS:

            def norm(kind=kind, rows=rows, n=n):
                x, weight = drawn(rows, n), drawn(n)
                own = F.rms_norm if kind == "rms" else F.layer_norm
                call = lambda: warplap.norm(x, weight, kind=kind)
                wide = lambda: own(x.double(), (n,), weight.double())
                return (warplap.norm, x, weight, {"kind": kind}), call, lambda: own(x, (n,), weight), wide

            yield f"norm bf16 {kind} {rows}×{n}", 8e-3, norm


def exact(q, k, v, causal):
    group = q.shape[1] // k.shape[1]
    parts = []
    for head in range(q.shape[1]):
        scores = q[0, head].float() @ k[0, head // group].float().T / math.sqrt(q.shape[-1])
        if causal:
            scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu_(1), -math.inf)
        parts.append(scores.softmax(-1) @ v[0, head // group].float())
    return torch.stack(parts)[None]


def timed(graph):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(200_000)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def both_clocks(lanes, rounds):
    """Seconds of one call of each lane, round by round: in use and back to back; and those of the kernel between."""
    x = torch.zeros(65_536, device="cuda")
    between = lambda: x.add_(1)
    for call in (between, *lanes.values()):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graphs, counts = {}, {}
    for name, call in lanes.items():
        first = graph_of(call, 4)
        timed(first)
        counts[name] = min(100, max(2, math.ceil(SAMPLE / (min(timed(first), timed(first)) / 4))))
        graphs["chain", name] = graph_of(call, counts[name])
        graphs["use", name] = graph_of(lambda: (between(), call()), counts[name])
        graphs["between", name] = graph_of(between, counts[name])
    times = {key: [] for key in graphs}
    for i in range(rounds + 3):
        for key in random.sample(list(graphs), len(graphs)):
            seconds = timed(graphs[key]) / counts[key[1]]
            if i >= 3:  # The first rounds warm caches and clocks.
                times[key].append(seconds)
    alone = {name: statistics.median(times["between", name]) for name in lanes}
    use = {name: [t - alone[name] for t in times["use", name]] for name in lanes}
    return use, {name: times["chain", name] for name in lanes}, alone


def shown(config):
    return ",".join(f"{k}={v}" for k, v in config.items()) if isinstance(config, dict) else str(config)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="matmul,linear,attention,bsr,norm")
    parser.add_argument("--part", default="0/1", help="every Nth problem, from the Ith on")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tuning a problem")
    parser.add_argument("--clock", default="use", help="the clock that warplap tunes by: use or back-to-back")
    parser.add_argument("--json", help="also write JSON lines to this file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    versions = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    versions |= {"cudnn": torch.backends.cudnn.version(), "warplap": warplap.__version__, "python": platform.python_version()}
    print(", ".join(f"{k} {v}" for k, v in versions.items()) + f"; {args.rounds} rounds, {args.budget:g} s a problem\n")
    print("| problem | winner | in use: warplap µs | torch µs | torch / warplap | back to back: warplap µs | torch µs | torch / warplap | tuned in s |")
    print("|---|---|---|---|---|---|---|---|---|")
    out = open(args.json, "w") if args.json else None
    part, parts = map(int, args.part.split("/"))
    ratios = {"use": [], "chain": []}
    for _, (name, share, make) in [p for p in enumerate(problems(args.only.split(","))) if p[0] % parts == part]:
        store = tempfile.mkdtemp(dir=os.path.expanduser("~"))
        warplap.configure(store=store, budget=args.budget, clock=args.clock)
        asked, ours, torchs, wide = make()
        begun = time.perf_counter()
        got = ours()
        torch.cuda.synchronize()
        seconds, wanted = time.perf_counter() - begun, wide()
        right(f"{name}: warplap", got, wanted, share)
        right(f"{name}: torch", torchs(), wanted, share)
        del got, wanted
        operator, *arguments = asked
        words = arguments.pop() if isinstance(arguments[-1], dict) else {}
        words.pop("out", None)
        explanation = warplap.explain(operator, *arguments, **words)
        use, chain, alone = both_clocks({"warplap": ours, "torch": torchs}, args.rounds)
        winner = f"{explanation.variant} {shown(explanation.record['verdict']['winner']['config'])}"
        for clock, times in (("use", use), ("chain", chain)):
            ratios[clock].append(statistics.median([t / o for t, o in zip(times["torch"], times["warplap"])]))
        cells = [name, winner]
        for times in (use, chain):
            cells += [us(times["warplap"]), us(times["torch"]), over(times["torch"], times["warplap"])]
        print("| " + " | ".join([*cells, f"{seconds:.1f}"]) + " |", flush=True)
        if out:
            raced = {}
            for trial in explanation.record["trials"]:
                took = trial.get("measured") or (trial.get("rejected") or {}).get("measurement") or {}
                if took.get("median_us", math.inf) < raced.get(trial["variant"], [math.inf])[0]:
                    raced[trial["variant"]] = [took["median_us"], took["sigma"], took["rounds"], took["batch"]]
            row = {"problem": name, "winner": winner, "tune_s": seconds, "raced": raced, "between_us": alone["torch"] * 1e6}
            row |= {f"use_{n}": [x * 1e6 for x in quartiles(xs)] for n, xs in use.items()}
            row |= {f"chain_{n}": [x * 1e6 for x in quartiles(xs)] for n, xs in chain.items()}
            out.write(json.dumps(row | {"key": explanation.key, "versions": versions}) + "\n")
            out.flush()
        torch.cuda.empty_cache()
    for clock, name in (("use", "in use"), ("chain", "back to back")):
        values = ratios[clock]
        mean = math.exp(statistics.fmean(map(math.log, values)))
        held = sum(v >= 0.98 for v in values)
        print(f"\n{name}: {held} of {len(values)} at 0.98 or more, least {min(values):.3f}, geometric mean {mean:.3f}")


if __name__ == "__main__":
    sys.exit(main())
