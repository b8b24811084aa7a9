"""attention on a GPU beside torch's own, through the public call: forward, forward and backward, what torch has only
through FlexAttention or a written mask, and decoding from pages beside keys in one piece.

    python lab/gpu/attention.py [--parts forward,training,features,paged,gaps,host] [--rounds 15] [--budget 8]
                                [--json FILE]

Forward calls are captured in graphs and replayed in alternating rounds by the clock of use (lab/gpu/products.py); the
rivals are torch's flash, cuDNN and efficient backends, each by itself. Steps (a call and its gradients) are timed
eagerly, eight in a row and the wait for the last, with the peak of memory beside them. Every lane of ours is held to
double precision on its last head before it is timed.
"""

import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import warplap
from products import quartiles, race
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
# batch, heads, heads of keys, queries, keys, width, causal
FORWARD = [
    (1, 8, 8, 512, 512, 64, False),
    (1, 8, 8, 512, 512, 64, True),
    (8, 16, 16, 512, 512, 64, False),
    (4, 32, 32, 1024, 1024, 128, True),
    (4, 16, 16, 2048, 2048, 128, False),
    (2, 16, 16, 4096, 4096, 128, True),
    (2, 16, 16, 4096, 4096, 128, False),
    (2, 16, 16, 4096, 4096, 64, False),
    (1, 16, 16, 16384, 16384, 128, True),
    (1, 16, 16, 16384, 16384, 128, False),
    (1, 32, 32, 1, 4096, 128, False),
    (16, 32, 32, 1, 4096, 128, False),
    (1, 12, 12, 197, 197, 64, False),
    (2, 8, 8, 1000, 1000, 80, False),
    (2, 32, 8, 2048, 2048, 128, True),
    (2, 16, 16, 2048, 2048, 96, False),
    (2, 16, 16, 2048, 2048, 256, True),
    (1, 32, 8, 1, 1024, 128, False),
    (1, 32, 8, 1, 16384, 128, False),
    (1, 32, 8, 1, 65536, 128, False),
]
TRAINING = [
    (2, 16, 16, 4096, 4096, 128, True),
    (2, 16, 16, 4096, 4096, 128, False),
    (4, 16, 16, 2048, 2048, 64, True),
    (4, 16, 16, 2048, 2048, 64, False),
    (2, 32, 8, 2048, 2048, 128, True),
    (2, 16, 16, 2048, 2048, 256, True),
    (1, 8, 8, 512, 512, 64, False),
]


def tensors(b, h, hkv, sq, sk, d, dtype=torch.bfloat16):
    make = lambda heads, n: torch.randn(b, heads, n, d, device="cuda", dtype=dtype)
    return make(h, sq), make(hkv, sk), make(hkv, sk)


def right(q, k, v, bend=lambda scores: scores):
    """The last head in double precision."""
    q, k, v = (t[-1, -1].double() for t in (q, k, v))
    return bend(q @ k.T * q.shape[-1] ** -0.5).softmax(-1) @ v


def hide(causal):
    def bend(scores):
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf) if causal else scores

    return bend


def holds(name, got, want):
    off = ((got[-1, -1].double() - want).norm() / want.norm()).item()
    if not off < 0.01:
        raise SystemExit(f"{name} is off by {off}")


def name_of(b, h, hkv, sq, sk, d, causal):
    heads = f"{h}" if h == hkv else f"{h}/{hkv}"
    length = f"{sq}" if sq == sk else f"{sq}/{sk}"
    return f"{b} × {heads} × {length} × {d}" + (" causal" if causal else "")


def rivals(q, k, v, **facts):
    """torch's backends that take a problem, each by itself."""

    def by(backend):
        def call(i=0):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, **facts)

        return call

    calls = {}
    for name, backend in BACKENDS.items():
        try:
            by(backend)()
            calls[name] = by(backend)
        except RuntimeError:
            pass
    return calls


def row(rows, part, name, times, note=""):
    middle = {lane: quartiles(taken)[0] * 1e6 for lane, taken in times.items()}
    best = min((lane for lane in middle if lane != "warplap"), key=middle.get)
    ratio = quartiles([t / w for w, t in zip(times["warplap"], times[best])])
    rows.append({"part": part, "name": name, "us": middle, "ratio": ratio, "note": note})
    others = ", ".join(f"{lane} {us:.1f}" for lane, us in middle.items() if lane != "warplap")
    print(f"| {name} | {middle['warplap']:.1f} | {others} | **{ratio[0]:.2f}** ({ratio[1]:.2f}–{ratio[2]:.2f}) | {note} |", flush=True)


def forward(rows, args):
    print("\n| forward, f16 | warplap µs | torch µs | best of torch / warplap | |\n|---|---|---|---|---|")
    for shape in FORWARD:
        name = name_of(*shape)
        if args.only not in name:
            continue
        *sizes, causal = shape
        q, k, v = tensors(*sizes, dtype=torch.float16)
        facts = {"is_causal": causal, "enable_gqa": sizes[1] != sizes[2]}
        call = lambda i=0: warplap.attention(q, k, v, **facts)
        with torch.no_grad():
            holds(name, call(), right(q, k, v, hide(causal)))
            row(rows, "forward", name, race({"warplap": call, **rivals(q, k, v, **facts)}, 1, args.rounds, "use"))


def steps(call, leaves, grad, count=8):
    """Seconds of one step, eight in a row."""
    begun = time.perf_counter()
    for _ in range(count):
        torch.autograd.grad(call(*leaves), leaves, grad)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / count


def peak(call, leaves, grad):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.autograd.grad(call(*leaves), leaves, grad)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def training(rows, args):
    print("\n| forward and backward, bf16 | warplap µs | torch µs | torch / warplap | peak MiB beside torch's |\n|---|---|---|---|---|")
    for shape in TRAINING:
        name = name_of(*shape)
        if args.only not in name:
            continue
        *sizes, causal = shape
        leaves = [t.requires_grad_() for t in tensors(*sizes)]
        grad = torch.randn_like(leaves[0])
        gqa = sizes[1] != sizes[2]
        lanes = {
            "warplap": lambda q, k, v: warplap.attention(q, k, v, is_causal=causal, enable_gqa=gqa),
            "torch": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa),
        }
        gradients = torch.autograd.grad(lanes["warplap"](*leaves), leaves, grad)
        wide = [t[-1, -1].detach().double().requires_grad_() for t in leaves]
        scores = hide(causal)(wide[0] @ wide[1].T * wide[0].shape[-1] ** -0.5)
        wanted = torch.autograd.grad(scores.softmax(-1) @ wide[2], wide, grad[-1, -1].double())
        holds(f"dq of {name}", gradients[0], wanted[0])
        if not gqa:
            holds(f"dk of {name}", gradients[1], wanted[1]), holds(f"dv of {name}", gradients[2], wanted[2])
        peaks = {lane: peak(call, leaves, grad) for lane, call in lanes.items()}
        times = {lane: [] for lane in lanes}
        for i in range(args.rounds + 2):
            for lane, call in lanes.items():
                took = steps(call, leaves, grad)
                if i >= 2:
                    times[lane].append(took)
        row(rows, "training", name, times, f"{peaks['warplap']:.0f} / {peaks['torch']:.0f}")


def flex(bend, block=None):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention)
    mask = None if block is None else create_block_mask(block, None, None, 2048, 2048, device="cuda")
    return lambda q, k, v: compiled(q, k, v, score_mod=bend, block_mask=mask)


def dropped(q, k, v, seed, share):
    """The last head's, with weights dropped by place and seed: the rule of every kernel, in torch's operators."""
    from warplap.ops.dropout import of_weights

    one = [t[-1, -1].double() for t in (q, k, v)]
    weights = (one[0] @ one[1].T * one[0].shape[-1] ** -0.5).softmax(-1)
    return (weights * of_weights(*q.shape[:3], k.shape[2], seed, share)[-1, -1]) @ one[2]


def features(rows, args):
    print("\n| 2 × 16 × 2048 × 128, bf16 | warplap µs | rivals µs | best rival / warplap | |\n|---|---|---|---|---|")
    q, k, v = tensors(2, 16, 16, 2048, 2048, 128)
    n, slopes = 2048, 2.0 ** -(8 * torch.arange(1, 17, device="cuda", dtype=torch.float32) / 16)
    bias = torch.randn(1, 16, n, n, device="cuda", dtype=torch.bfloat16)
    seen = torch.rand(2, 1, n, n, device="cuda") > 0.1
    seed = torch.tensor([5, 6], device="cuda")
    place = torch.arange(n, device="cuda")
    away = (place[None] - place[:, None]).abs().double()
    band = lambda width: lambda s: s.masked_fill((place[None] > place[:, None]) | (away > width), -math.inf)
    cases = {
        "bias of heads": (dict(mask=bias), lambda s: s + bias[0, -1].double(), {"sdpa": lambda i=0: F.scaled_dot_product_attention(q, k, v, bias)}),
        "ALiBi": (dict(alibi_slopes=slopes), lambda s: s - slopes[-1].double() * away, {}),
        "window 512 causal": (dict(window=512, is_causal=True), band(512), {}),
        "window 1024 causal": (dict(window=1024, is_causal=True), band(1024), {}),
        "soft cap 30": (dict(softcap=30.0), lambda s: 30 * torch.tanh(s / 30), {}),
        "bools of batches": (dict(mask=seen), lambda s: s.masked_fill(~seen[-1, 0], -math.inf), {"sdpa": lambda i=0: F.scaled_dot_product_attention(q, k, v, seen)}),
        "dropout 0.1": (dict(dropout_p=0.1, seed=seed), None, {"sdpa": lambda i=0: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)}),
    }
    if args.flex:
        mods = {
            "ALiBi": flex(lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()),
            "window 512 causal": flex(None, lambda b, h, i, j: (i >= j) & (i - j <= 512)),
            "window 1024 causal": flex(None, lambda b, h, i, j: (i >= j) & (i - j <= 1024)),
            "soft cap 30": flex(lambda s, b, h, i, j: 30 * torch.tanh(s / 30)),
        }
        for name, call in mods.items():
            cases[name][2]["flex"] = lambda i=0, call=call: call(q, k, v)
    plain = lambda i=0: F.scaled_dot_product_attention(q, k, v)
    with torch.no_grad():
        for name, (facts, bend, others) in cases.items():
            if args.only not in name:
                continue
            call = lambda i=0: warplap.attention(q, k, v, **facts)
            wanted = right(q, k, v, bend) if bend else dropped(q, k, v, seed, 0.1)
            holds(name, call(), wanted)
            row(rows, "features", name, race({"warplap": call, **(others or {"sdpa without": plain})}, 1, args.rounds, "use"))


def paged(rows, args):
    print("\n| decoding from pages, bf16 | warplap µs | others µs | best other / warplap | |\n|---|---|---|---|---|")
    for b, h, hkv, n, d in ((1, 32, 32, 4096, 128), (16, 32, 8, 4096, 128)):
        q, k, v = tensors(b, h, hkv, 1, n, d)
        dense = lambda i=0: warplap.attention(q, k, v, enable_gqa=True)
        for page in (16, 64):
            name = f"{name_of(b, h, hkv, 1, n, d, False)}, pages of {page}"
            if args.only not in name:
                continue
            # The same keys, cut into pages that lie in any order, among a quarter more that nobody names.
            entries = n // page
            table = torch.randperm(b * entries * 5 // 4, device="cuda")[: b * entries].reshape(b, entries)
            pools = []
            for t in (k, v):
                pool = torch.zeros(b * entries * 5 // 4, page, hkv, d, device="cuda", dtype=t.dtype)
                pool[table.flatten()] = t.transpose(1, 2).reshape(b * entries, page, hkv, d)
                pools.append(pool)
            named, some = table.int(), torch.linspace(n, n // 4, b, device="cuda").int()
            from_pages = lambda **more: warplap.attention(q, *pools, enable_gqa=True, block_table=named, **more)

            def gathered(i=0):
                whole = (t[table].flatten(1, 2).transpose(1, 2) for t in pools)
                return F.scaled_dot_product_attention(q, *whole, enable_gqa=True)

            lanes = {"warplap": lambda i=0: from_pages(), "in one piece": dense, "gathered, torch": gathered}
            unequal = {
                "warplap": lambda i=0: from_pages(lengths=some),
                "in one piece": lambda i=0: warplap.attention(q, k, v, enable_gqa=True, lengths=some),
            }
            last = int(some[-1])
            with torch.no_grad():
                for lane, call in lanes.items():
                    holds(f"{name}: {lane}", call(), right(q, k, v))
                for lane, call in unequal.items():
                    holds(f"{name}: unequal, {lane}", call(), right(q, k[:, :, :last], v[:, :, :last]))
                row(rows, "paged", name, race(lanes, 1, args.rounds, "use"), f"{b * entries} pages")
                row(rows, "paged", f"{name}, {n} … {last} keys", race(unequal, 1, args.rounds, "use"))


def per_call(call, count=300, waits=False):
    """Seconds of a call; those of the GPU where it ``waits``."""
    call()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(count):
        call()
    if waits:
        torch.cuda.synchronize()
    took = (time.perf_counter() - begun) / count
    torch.cuda.synchronize()
    return took


def strided_views(rows, args):
    """q, k and v are parts of one projection: torch reads them where they lie."""
    print("\n| parts of one projection | warplap µs | others µs | best other / warplap | |\n|---|---|---|---|---|")
    for b, s, h, d, causal in ((16, 512, 16, 64, False), (1, 4096, 32, 128, True), (2, 64, 16, 64, False)):
        projected = torch.randn(b, s, 3, h, d, device="cuda", dtype=torch.bfloat16)
        q, k, v = (projected[:, :, i].transpose(1, 2) for i in range(3))
        name, facts = name_of(b, h, h, s, s, d, causal), {"is_causal": causal}
        lanes = {
            "warplap": lambda: warplap.attention(q, k, v, **facts),
            "torch": lambda: F.scaled_dot_product_attention(q, k, v, **facts),
            "copies": lambda: warplap.attention(*(t.contiguous() for t in (q, k, v)), **facts),
        }
        for lane in ("warplap", "copies"):
            holds(name, lanes[lane](), right(q, k, v, hide(causal)))
        times = {lane: [] for lane in lanes}
        for _ in range(args.rounds):
            for lane, call in lanes.items():
                times[lane].append(per_call(call, waits=True))
        row(rows, "gaps", name, times)


def host(rows, args):
    print("\n| host, 1 × 8 × 512 × 64 bf16 | warplap µs | torch µs | torch / warplap | |\n|---|---|---|---|---|")
    q, k, v = tensors(1, 8, 8, 512, 512, 64)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    grad = torch.randn_like(q)

    ours, theirs = warplap.attention, F.scaled_dot_product_attention
    forward_alone, with_graph = ("forward", (q, k, v), False), ("forward, gradients wanted", leaves, False)
    for name, inputs, both in (forward_alone, with_graph, ("and backward", leaves, True)):
        lane = lambda f: (lambda: torch.autograd.grad(f(*inputs), inputs, grad)) if both else (lambda: f(*inputs))
        times = {"warplap": [], "torch": []}
        for _ in range(args.rounds):
            times["warplap"].append(per_call(lane(ours))), times["torch"].append(per_call(lane(theirs)))
        row(rows, "host", name, times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="forward,training,features,paged,gaps,host")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of tuning a problem")
    parser.add_argument("--only", default="", help="problems that contain this text")
    parser.add_argument("--flex", action="store_true", help="FlexAttention too, which compiles for some seconds each")
    parser.add_argument("--json", help="also write JSON lines to this file")
    args = parser.parse_args()
    begun = time.monotonic()
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "warplap": warplap.__version__}
    print(f"{torch.cuda.get_device_name()}, " + ", ".join(f"{k} {v}" for k, v in versions.items()) + f"; {args.rounds} rounds")
    warplap.configure(budget=args.budget, bucket="exact")
    parts = {"forward": forward, "training": training, "features": features, "paged": paged, "gaps": strided_views}
    parts["host"] = host
    rows = []
    for part in args.parts.split(","):
        parts[part](rows, args)
    for part in {row["part"] for row in rows}:
        ratios = [row["ratio"][0] for row in rows if row["part"] == part]
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
        print(f"{part}: {len(ratios)} rows, geometric mean {mean:.3f}, least {min(ratios):.3f}")
    print(f"{time.monotonic() - begun:.0f} s in all")
    if args.json:
        with open(args.json, "w") as out:
            out.writelines(json.dumps({**row, "versions": versions}) + "\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
