"""Products with what follows them, gated layers, a norm in front, rotary embeddings and losses without logits, beside
torch on a GPU, in bfloat16.

    python lab/gpu/fused_layers.py [--parts residual,gelu,gate,pairs,mlp,norm_linear,rope,loss] [--rows 16,256,4096]
                                   [--rounds 15] [--budget 8] [--mode max-autotune-no-cudagraphs] [--quick]
    python lab/gpu/fused_layers.py --parts prove_pairs,prove_rope [--seconds 60]

Calls are captured in graphs behind a neutral kernel (the clock `use` of lab/gpu/products.py) and replayed in
alternating rounds: medians and quartiles. Every lane is held to double precision first, ours on poisoned memory.
`compiled` is torch.compile in the mode given. Steps of the loss are timed eagerly, four in a row and the wait for the
last, with their peak of memory. The proofs draw random problems (lab/gpu/fused_parts/proofs.py), let every setting
race, and hold winner and reference to float64.
"""

import argparse
import math
import random
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
import warplap
from fused_parts import loss, proofs
from fused_parts.tensors import BF16, head, line, make, off, poison, weight
from products import quartiles, race
from rivals import rope as rival_rope


def compiled(fn, args):
    torch._dynamo.reset()
    return torch.compile(fn, mode=args.mode, dynamic=False)


def held(name, lanes, right, most):
    """Those of the lanes that run, held to the right answer; ours must be there. The farthest of ours."""
    calls, worst = {}, 0.0
    for lane, call in lanes.items():
        try:
            call()
            poison(right.shape)
            got = call()
        except Exception as why:
            if lane == "warplap":
                raise
            print(f"{name}: {lane} is left out: {str(why)[:120]}", file=sys.stderr)
            continue
        if lane == "that mm alone":  # another product, for its time
            calls[lane] = lambda _=0, call=call: call()
            continue
        bad = off(got, right)
        assert bad < (most if lane == "warplap" else 2.5 * most), f"{name}: {lane} is off by {bad}"
        worst = max(worst, bad) if lane.startswith(("warplap", "ours")) else worst
        calls[lane] = lambda _=0, call=call: call()
    return calls, worst


def layer(name, lanes, right, args, asked="–", who="", most=6e-3):
    """One line: ours is the lane `warplap`; other ways of ours begin with `ours`, all others are rivals."""
    with torch.no_grad():
        lanes, worst = held(name, lanes, right, most)
        times = race(lanes, 1, args.rounds, "use")
    us = {lane: statistics.median(taken) * 1e6 for lane, taken in times.items()}
    rival = min((lane for lane in us if not lane.startswith(("warplap", "ours", "that mm"))), key=us.get)
    ratio, low, high = quartiles([b / a for a, b in zip(times["warplap"], times[rival])])
    others = ", ".join(f"{lane} {t:.1f}" for lane, t in us.items() if lane != "warplap")
    ratio_text = f"**{ratio:.2f}** ({low:.2f}–{high:.2f}) of {rival}"
    line(name, f"{us['warplap']:.1f}", ratio_text, asked, others, who, f"{worst:.0e}")


LAYERS = ("layer", "warplap µs", "best rival / warplap", "asked", "others µs", "winner", "off")


def with_asked(rows, asked):
    """Every number of rows with what is asked there."""
    return [(m, dict(zip((16, 256, 4096), asked)).get(m, "–")) for m in rows]


def variant(fields, m, n, k):
    return warplap.explain(f"gemm:m={m},n={n},k={k},dtype=bf16,b=col,{fields}", device="cuda").variant


def into(call, m, n):
    """The call into memory that holds NaN."""
    out = torch.full((m, n), math.nan, device="cuda", dtype=BF16)
    return call(out=out)


def residual(args):
    head(*LAYERS)
    n, k = 4096, 11008
    w = weight(n, k)
    for m, asked in with_asked(args.rows, (1.17, 1.03, 1.01)):
        x, r = make(m, k), make(m, n)
        theirs, right = lambda x, w, r: r + F.linear(x, w), r.double() + x.double() @ w.double().t()
        run, ours = compiled(theirs, args), lambda out=None: warplap.linear(x, w, residual=r, out=out)
        lanes = {"warplap": ours, "eager": lambda: theirs(x, w, r), "compiled": lambda: run(x, w, r)}
        lanes["addmm"] = lambda: torch.addmm(r, x, w.t())
        assert off(into(ours, m, n), right) < 6e-3
        layer(f"residual + linear, {m}×{k}→{n}", lanes, right, args, asked, variant("join=add", m, n, k))


def gelu(args):
    head(*LAYERS)
    n, k = 11008, 4096
    w, bias = weight(n, k), make(n)
    for act, kind in (("gelu", "none"), ("gelu_tanh", "tanh")):
        for m, asked in with_asked(args.rows, (1.05, 1.00, 1.05)):
            x = make(m, k)
            theirs = lambda x, w, b: F.gelu(F.linear(x, w, b), approximate=kind)
            right = theirs(x.double(), w.double(), bias.double())
            run, ours = compiled(theirs, args), lambda out=None: warplap.linear(x, w, bias, act, out=out)
            mine = torch.compile(lambda x, w, b: warplap.linear(x, w, b, act), dynamic=False)
            lanes = {"warplap": ours, "eager": lambda: theirs(x, w, bias), "compiled": lambda: run(x, w, bias)}
            if kind == "tanh":  # what cuBLASLt has in its epilogue
                lanes["addmm_act"] = lambda: torch._addmm_activation(bias, x, w.t(), use_gelu=True)
            lanes["ours in compile"] = lambda: mine(x, w, bias)
            assert off(into(ours, m, n), right) < 6e-3
            who = variant(f"bias=true,act={act}", m, n, k)
            layer(f"{act}(linear + bias), {m}×{k}→{n}", lanes, right, args, asked, who)


def gate(args):
    head(*LAYERS)
    n, k = 11008, 4096
    w = weight(n, k)
    for m in args.rows:
        x, y = make(m, k), make(m, n)
        theirs = lambda x, w, y: F.silu(F.linear(x, w)) * y
        right = theirs(x.double(), w.double(), y.double())
        run, ours = compiled(theirs, args), lambda out=None: warplap.linear(x, w, activation="silu", times=y, out=out)
        lanes = {"warplap": ours, "eager": lambda: theirs(x, w, y), "compiled": lambda: run(x, w, y)}
        assert off(into(ours, m, n), right) < 6e-3
        who = variant("act=silu,join=mul", m, n, k)
        layer(f"silu(linear) ∘ other, {m}×{k}→{n}", lanes, right, args, "–", who)


def apart(x, gate, up):
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def pairs(args):
    """The rivals also with both weights in one matrix, which spares them a second product."""
    head(*LAYERS)
    n, k = 11008, 4096
    both = weight(2 * n, k)
    gate, up = both[:n], both[n:]
    for m, asked in with_asked(args.rows, (1.11, 1.06, 1.08)):
        x, wide, c = make(m, k), torch.empty(m, 2 * n, device="cuda", dtype=BF16), make(m, n)
        joined = lambda x, w: F.silu((y := F.linear(x, w))[:, :n]) * y[:, n:]
        right = apart(x.double(), gate.double(), up.double())
        run, two = compiled(joined, args), torch.compile(apart, mode=args.mode, dynamic=False)
        ours = lambda out=None: warplap.gated_linear(x, gate, up, out=out)
        text = f"gemm:m={m},n={n},k={k},dtype=bf16,b=col,act=silu,pair=true"
        slots = {"a": x, "b": gate.t(), "b2": up.t(), "c": c}
        lanes = {"warplap": ours, "ours by run": lambda: (warplap.run(text, slots), c)[1]}
        lanes |= {"two eager": lambda: apart(x, gate, up), "two compiled": lambda: two(x, gate, up)}
        lanes |= {"one mm, silu, times": lambda: joined(x, both), "compiled": lambda: run(x, both)}
        assert off(into(ours, m, n), right) < 6e-3
        layer(f"silu(x·Wg) ∘ (x·Wu), {m}×{k}→{n}", lanes, right, args, asked, variant("act=silu,pair=true", m, n, k))
        alone = race({"mm": lambda _: torch.mm(x, both.t(), out=wide)}, 1, args.rounds, "use")["mm"]
        line("one mm of both alone", f"{statistics.median(alone) * 1e6:.1f}", "", "", "", "", "")


def mlp(args):
    """A gated layer and the projection behind it."""
    head(*LAYERS)
    n, k = 11008, 4096
    gate, up, down = weight(n, k), weight(n, k), weight(k, n)
    for m, asked in with_asked(args.rows, (1.15, 1.06, 1.07)):
        x = make(m, k)
        theirs = lambda x, gate, up, down: F.linear(apart(x, gate, up), down)
        inputs = x, gate, up, down
        right = theirs(*(t.double() for t in inputs))
        run, fused = compiled(theirs, args), warplap.fuse(theirs, dynamic=False, mode=args.mode)
        ours = lambda: warplap.linear(warplap.gated_linear(x, gate, up), down)
        lanes = {"warplap": ours, "ours by fuse": lambda: fused(*inputs)}
        lanes |= {"eager": lambda: theirs(*inputs), "compiled": lambda: run(*inputs)}
        ours()  # races
        who = f"{variant('act=silu,pair=true', m, n, k)}, {warplap.explain(warplap.linear, make(m, n), down).variant}"
        layer(f"SwiGLU and down, {m}×{k}→{n}→{k}", lanes, right, args, asked, who, most=8e-3)
        print(fused.explain(), file=sys.stderr, flush=True)


def norm_linear(args):
    """An RMSNorm and the product behind it: as one call, as two, and by who won in `warplap.fuse`."""
    head(*LAYERS)
    n = 4096
    gain, w = (torch.nn.Parameter(t, requires_grad=False) for t in (make(n), weight(n, n)))
    for m, asked in with_asked(args.rows, ("≤ 7.5 µs", "≤ 17.2 µs", 1.05)):
        x = make(m, n)
        theirs = lambda x, gain, w: F.linear(F.rms_norm(x, (n,), gain, 1e-6), w)
        right = theirs(x.double(), gain.double(), w.double())
        run, fused = compiled(theirs, args), warplap.fuse(theirs, dynamic=False, mode=args.mode, freeze=True)
        lanes = {"warplap": lambda: warplap.norm_linear(x, w, gain, eps=1e-6)}
        lanes["ours by two calls"] = lambda: warplap.linear(warplap.norm(x, gain, eps=1e-6), w)
        lanes["ours by fuse"] = lambda: fused(x, gain, w)
        lanes |= {"eager": lambda: theirs(x, gain, w), "compiled": lambda: run(x, gain, w)}
        lanes["that mm alone"] = lambda: F.linear(x, w)
        with torch.no_grad():
            fused(x, gain, w)
        decision = fused.decisions[-1]
        by_fuse = " + ".join(decision.winner.kinds) if decision.winner else decision.form
        who = f"{variant('rms=1e-6', m, n, n)}; fuse: {by_fuse}"
        layer(f"RMSNorm, linear, {m}×{n}→{n}", lanes, right, args, asked, who, most=8e-3)
        print(fused.explain(), file=sys.stderr, flush=True)


def rope(args):
    """Answers of all forms are held to float64 by the proofs."""
    head("rope", "tokens", "warplap µs", "eager", "compiled", "compiled / warplap", "TB/s")
    for tokens in (args.rows[0], args.rows[-1]):
        for name, moved, ours, theirs, inputs in rival_rope.turns(tokens):
            torch._dynamo.reset()
            run = torch.compile(theirs)
            lanes = {"warplap": ours, "eager": lambda: theirs(*inputs), "compiled": lambda: run(*inputs)}
            with torch.no_grad():
                times = race({lane: lambda _, call=call: call() for lane, call in lanes.items()}, 1, args.rounds, "use")
            us = [statistics.median(times[lane]) * 1e6 for lane in lanes]
            ratio = quartiles([b / a for a, b in zip(times["warplap"], times["compiled"])])
            ratio_text = "**{:.2f}** ({:.2f}–{:.2f})".format(*ratio)
            line(name, tokens, *(f"{t:.2f}" for t in us), ratio_text, f"{moved / us[0] / 1e6:.2f}")


PARTS = {
    "residual": residual, "gelu": gelu, "gate": gate, "pairs": pairs, "mlp": mlp, "norm_linear": norm_linear,
    "rope": rope, "loss": loss.loss, "prove_pairs": proofs.pairs, "prove_rope": proofs.rope,
}  # fmt: skip
TIMED = [part for part in PARTS if not part.startswith("prove")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(TIMED), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rows", default="16,256,4096")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of each race")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each proof")
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs", help="of torch.compile")
    parser.add_argument("--quick", action="store_true", help="small sizes of the loss, to see that it runs")
    args = parser.parse_args()
    args.rows = [int(m) for m in args.rows.split(",")]
    unknown = [part for part in args.parts.split(",") if part not in PARTS]
    if unknown:
        parser.error(f"--parts: has {unknown[0]!r}, expected some of {', '.join(PARTS)}")
    warnings.simplefilter("ignore")
    warplap.configure(in_memory=True, budget=args.budget)
    torch.manual_seed(0)
    random.seed(0)
    print(f"warplap {warplap.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    wrong = 0
    for part in args.parts.split(","):
        begun = time.perf_counter()
        wrong += PARTS[part](args) or 0
        torch.cuda.empty_cache()
        print(f"{part}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
