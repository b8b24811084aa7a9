"""Layers on a GPU as a model uses them, beside torch's dense ones: sparse and dense, forward and with all gradients.

    python lab/gpu/training.py [--only sparse,decode,mlp,dense,host,layouts] [--rounds 9] [--budget 10]

bf16. *Eager* is wall time of calls in a row with one wait at the end; *graph* is device time of captured calls. Rounds
alternate between the lanes; medians (quartiles). Needs torch with CUDA and the package; outputs are compared first.
"""

import argparse
import functools
import warnings

import torch
import torch.nn.functional as F
import warplap
from python_calls import device_race, eager_race, host_costs, over, right, us
from warplap.nn import Linear, SparseLinear

SIDE = 4096


def drawn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def pair(k, n, block, density, bias=True):
    """A sparse layer and a dense one of its size. The dense one that computes the same is what it is compared with."""
    dense = torch.nn.Linear(k, n, bias, device="cuda", dtype=torch.bfloat16)
    mask = torch.rand(n // block, k // block) < density
    mask[0, 0] = True
    return SparseLinear.from_dense(dense, mask, block), dense


def step(layer, x, along):
    """A forward pass and the gradients of the input and of every parameter."""
    return lambda: torch.autograd.grad(layer(x), [x, *layer.parameters()], along)


def row(name, lanes, race, rounds):
    times = race(lanes, rounds)
    ours, theirs = list(lanes)
    print(f"| {name} | {us(times[ours])} | {us(times[theirs])} | {over(times[theirs], times[ours])} |", flush=True)


def eager(calls):
    return functools.partial(eager_race, calls=calls)


def head(title):
    print(f"\n| {title} | warplap µs | torch µs | torch / warplap |\n|---|---|---|---|")


def sparse(args):
    head(f"SparseLinear {SIDE}×{SIDE}, 12.5 %, batch {SIDE}, beside dense Linear")
    for block in (64, 32):
        own, dense = pair(SIDE, SIDE, block, 0.125)
        x, along = drawn(SIDE, SIDE).requires_grad_(), drawn(SIDE, SIDE)
        right("forward", own(x), own.to_dense()(x), 8e-3)
        same = own.to_dense()
        for mine, theirs in zip(step(own, x, along)()[:1], step(same, x, along)()[:1]):
            right("gradient", mine, theirs, 8e-3)
        still = x.detach()
        with torch.no_grad():
            lanes = {"warplap": lambda: own(still), "torch": lambda: dense(still)}
            row(f"blocks of {block}: forward, no gradients, eager", lanes, eager(50), args.rounds)
            row(f"blocks of {block}: forward, graph", lanes, device_race, args.rounds)
        lanes = {"warplap": lambda: own(x), "torch": lambda: dense(x)}
        row(f"blocks of {block}: forward, eager", lanes, eager(50), args.rounds)
        lanes = {"warplap": step(own, x, along), "torch": step(dense, x, along)}
        row(f"blocks of {block}: forward and backward, eager", lanes, eager(20), args.rounds)
        row(f"blocks of {block}: forward and backward, graph", lanes, device_race, args.rounds)
        compiled = {"warplap": torch.compile(own, dynamic=False), "torch": torch.compile(dense, dynamic=False)}
        with torch.no_grad():
            lanes = {name: functools.partial(layer, still) for name, layer in compiled.items()}
            row(f"blocks of {block}: forward, compiled", lanes, eager(50), args.rounds)


def decode(args):
    head(f"SparseLinear {SIDE}×{SIDE} forward in a graph, few rows")
    points = [(1, 32, 0.125), (1, 64, 0.25), (16, 32, 0.25), (16, 64, 0.125), (64, 32, 0.125), (64, 64, 0.25)]
    for batch, block, density in points:
        own, dense = pair(SIDE, SIDE, block, density)
        x = drawn(batch, SIDE)
        with torch.no_grad():
            right("forward", own(x), own.to_dense()(x), 8e-3)
            lanes = {"warplap": lambda: own(x), "torch": lambda: dense(x)}
            row(f"batch {batch}, blocks of {block}, {density:.1%}", lanes, device_race, args.rounds)


def mlp(args):
    head("MLP 4096–11008–4096, 12.5 %, batch 4096, a training step with AdamW, eager")
    torch.manual_seed(0)
    layers = [pair(4096, 11008, 64, 0.125), pair(11008, 4096, 64, 0.125)]
    x, lanes, peaks = drawn(4096, 4096), {}, {}
    for name, side in (("warplap", 0), ("torch", 1)):
        model = torch.nn.Sequential(layers[0][side], torch.nn.GELU(), layers[1][side])
        best = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def train(model=model, best=best):
            best.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            best.step()

        train()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        train()
        peaks[name] = torch.cuda.max_memory_allocated() >> 20
        lanes[name] = train
    row("one step", lanes, eager(10), args.rounds)
    print(f"peak memory (both models live): {peaks['warplap']} MiB beside {peaks['torch']} MiB")


def dense(args):
    head("Linear with every activation, 11008×4096, forward and backward, eager")
    for m in (64, 4096):
        for activation in (None, "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"):
            own = Linear(4096, 11008, activation=activation, device="cuda", dtype=torch.bfloat16)
            plain = torch.nn.Linear(4096, 11008, device="cuda", dtype=torch.bfloat16)
            plain.load_state_dict(own.state_dict())
            named = {None: lambda y: y, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh")}
            named.update(tanh=torch.tanh, sigmoid=torch.sigmoid)
            after = named[activation] if activation in named else getattr(F, activation)
            x, along = drawn(m, 4096).requires_grad_(), drawn(m, 11008)
            theirs = lambda x, plain=plain, after=after: after(plain(x))
            theirs.parameters = plain.parameters
            right("forward", own(x), theirs(x), 8e-3)
            lanes = {"warplap": step(own, x, along), "torch": step(theirs, x, along)}
            row(f"{m} rows, {activation}", lanes, eager(20), args.rounds)


def host(args):
    print("\n| host time of one call, µs | warplap | torch | ratio | with gradients: warplap | torch | ratio |")
    print("|---|---|---|---|---|---|---|")
    a, b, w, bias, x = drawn(64, 64), drawn(64, 64), drawn(64, 64), drawn(64), drawn(64, 64)
    own, layer = pair(128, 128, 64, 0.6)
    q, z = drawn(1, 8, 512, 64), drawn(64, 128)
    graded = lambda *tensors: [t.clone().requires_grad_() for t in tensors]
    ga, gx, gz, gq = graded(a)[0], graded(x)[0], graded(z)[0], graded(q)[0]
    dense, sdpa = F.linear, F.scaled_dot_product_attention
    calls = {
        "matmul": (lambda x: warplap.matmul(x, b), lambda x: torch.mm(x, b), a, ga),
        "linear with bias": (lambda x: warplap.linear(x, w, bias), lambda x: dense(x, w, bias), x, gx),
        "linear and gelu": (lambda x: warplap.linear(x, w, bias, "gelu"), lambda x: F.gelu(dense(x, w, bias)), x, gx),
        "SparseLinear beside Linear": (own, layer, z, gz),
        "attention beside SDPA": (lambda q: warplap.attention(q, q, q), lambda q: sdpa(q, q, q), q, gq),
    }
    for name, (ours, theirs, plain, wanted) in calls.items():
        cells = []
        for inputs, grad in ((plain, False), (wanted, True)):
            with torch.set_grad_enabled(grad):
                lanes = {"warplap": lambda: ours(inputs), "torch": lambda: theirs(inputs)}
                cost = host_costs(lanes, passes=8)
            ours_took, theirs_took = cost["warplap"], cost["torch"]
            cells += [f"{ours_took * 1e6:.1f}", f"{theirs_took * 1e6:.1f}", f"{ours_took / theirs_took:.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def layouts(args):
    print("\n| bsr_matmul 4096³, 12.5 %, device µs | blocks | B, C | winner | µs |\n|---|---|---|---|---|")
    for n in (4096, 64):
        for block in (64, 32):
            own, _ = pair(SIDE, SIDE, block, 0.125)
            a = torch.sparse_bsr_tensor(own.crow, own.col, own.values.detach(), (SIDE, SIDE))
            b = drawn(SIDE, n)
            for turned_b in (False, True):
                for turned_c in (False, True):
                    left = b.t().contiguous().t() if turned_b else b
                    out = drawn(n, SIDE).t() if turned_c else drawn(SIDE, n)
                    call = lambda: warplap.bsr_matmul(a, left, out=out)
                    call()
                    right("product", out, a.to_dense() @ b, 8e-3)
                    variant = warplap.explain(warplap.bsr_matmul, a, left, out=out).variant
                    took = device_race({"it": call}, args.rounds)["it"]
                    names = " ".join("turned" if t else "plain" for t in (turned_b, turned_c))
                    print(f"| N {n} | {block} | {names} | {variant} | {us(took)} |", flush=True)


PARTS = {"sparse": sparse, "decode": decode, "mlp": mlp, "dense": dense, "host": host, "layouts": layouts}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of tuning a problem")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    warplap.configure(budget=args.budget)
    versions = f"torch {torch.__version__}, warplap {warplap.__version__}"
    print(f"{torch.cuda.get_device_name()}, {versions}; {args.rounds} rounds")
    for part in args.only.split(","):
        PARTS[part](args)


if __name__ == "__main__":
    main()
