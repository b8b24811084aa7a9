"""attention over packed sequences, and the gradient of its additive mask, on a GPU beside torch's own.

    python lab/gpu/attention_packed.py [--parts forward,training,masks] [--rounds 15] [--budget 8]

Packed: causal, bf16, sequences of unequal lengths one behind the other; the rival is torch's `varlen_attn` (flash
attention). Forward calls are captured and replayed by the clock of use (lab/gpu/products.py), steps are timed as
lab/gpu/attention.py times them. The mask's gradient is that of a whole step beside torch's efficient attention, the
only one of torch's backends that has it. Everything of ours is held to double precision first.
"""

import argparse
import random
import sys

import torch
import torch.nn.functional as F
import warplap
from attention import peak, row, steps
from products import race
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

# rows of all sequences, the longest, heads, heads of keys, width
PACKED = [(16384, 4096, 16, 16, 128), (16384, 1024, 16, 16, 64), (8192, 2048, 32, 8, 128), (4096, 512, 16, 16, 64)]


def lengths(total, longest):
    """Some of any length, the longest among them."""
    rest, drawn = total - longest, [longest]
    while rest:
        drawn.append(min(rest, random.randint(1, longest)))
        rest -= drawn[-1]
    random.shuffle(drawn)
    return drawn


def last_of(q, k, v, count):
    """The last sequence's last head in double precision, causal."""
    one = [t[-count:, -1].double() for t in (q, k, v)]
    scores = one[0] @ one[1].T * one[0].shape[-1] ** -0.5
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf).softmax(-1) @ one[2]


def holds(name, got, want, most=0.01):
    off = ((got.double() - want).norm() / want.norm()).item()
    if not off < most:
        raise SystemExit(f"{name} is off by {off}")


def packed(rows, args, training):
    what = "a step" if training else "forward"
    print(f"\n| packed, causal, bf16: {what} | warplap µs | torch µs | torch / warplap | |\n|---|---|---|---|---|")
    for total, longest, h, hkv, d in PACKED:
        random.seed(total + longest)
        drawn = lengths(total, longest)
        begins = torch.tensor([0, *drawn], device="cuda").cumsum(0).int()
        make = lambda heads: torch.randn(total, heads, d, device="cuda", dtype=torch.bfloat16)
        leaves = [make(h).requires_grad_(training), *(make(hkv).requires_grad_(training) for _ in range(2))]
        # Of a sequence's own queries and keys both corners are one; torch counts from the last.
        facts = dict(is_causal=True, align="bottom_right", enable_gqa=h != hkv)
        ours = lambda q, k, v: warplap.attention(q, k, v, cu_seqlens_q=begins, max_seqlen_q=longest, **facts)
        theirs = lambda q, k, v: varlen_attn(q, k, v, begins, begins, longest, longest, window_size=(-1, 0))
        heads = f"{h}" if h == hkv else f"{h}/{hkv}"
        name = f"{len(drawn)} sequences, {total} rows, the longest {longest} × {heads} × {d}"
        with torch.no_grad():
            holds(name, ours(*leaves)[-drawn[-1] :, -1], last_of(*leaves, drawn[-1]))
        if not training:
            with torch.no_grad():
                lanes = {"warplap": lambda i=0: ours(*leaves), "varlen": lambda i=0: theirs(*leaves)}
                row(rows, "forward", name, race(lanes, 1, args.rounds, "use"))
            continue
        grad = torch.randn_like(leaves[0])
        gradient = torch.autograd.grad(ours(*leaves), leaves, grad)[0][-drawn[-1] :, -1]
        wide = [t[-drawn[-1] :, -1:].detach().double().requires_grad_() for t in leaves]
        wanted = torch.autograd.grad(last_of(*wide, drawn[-1]), wide[0], grad[-drawn[-1] :, -1].double())[0]
        holds(f"dq of {name}", gradient, wanted[:, 0])
        peaks = [peak(call, leaves, grad) for call in (ours, theirs)]
        times = {"warplap": [], "varlen": []}
        for i in range(args.rounds + 2):
            for lane, call in zip(times, (ours, theirs)):
                took = steps(call, leaves, grad)
                if i >= 2:
                    times[lane].append(took)
        row(rows, "training", name, times, "{:.0f} / {:.0f} MiB".format(*peaks))


def masks(rows, args):
    print("\n| 2 × 16 × 2048 × 128, bf16, a step with the mask's gradient | warplap µs | torch µs | torch / warplap | peak |\n|---|---|---|---|---|")
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v, grad = make(2, 16, 2048, 128), make(2, 16, 2048, 128), make(2, 16, 2048, 128), make(2, 16, 2048, 128).detach()
    for shape in ((1, 16, 2048, 2048), (2048, 2048), (2, 16, 2048, 2048)):
        leaves = [q, k, v, make(*shape)]
        ours = lambda q, k, v, mask: warplap.attention(q, k, v, mask=mask)

        def theirs(q, k, v, mask):
            with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, mask.expand(2, 16, 2048, 2048))

        gradient, wanted = (torch.autograd.grad(call(*leaves), leaves, grad)[3] for call in (ours, theirs))
        holds(f"mask {list(shape)}", gradient, wanted.double(), 0.03)
        peaks = [peak(call, leaves, grad) for call in (ours, theirs)]
        times = {"warplap": [], "efficient": []}
        for i in range(args.rounds + 2):
            for lane, call in zip(times, (ours, theirs)):
                took = steps(call, leaves, grad)
                if i >= 2:
                    times[lane].append(took)
        row(rows, "masks", f"mask {list(shape)}", times, "{:.0f} / {:.0f} MiB".format(*peaks))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="forward,training,masks")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of tuning a problem")
    args = parser.parse_args()
    warplap.configure(budget=args.budget, bucket="exact")
    torch.manual_seed(1)
    rows = []
    for part in args.parts.split(","):
        masks(rows, args) if part == "masks" else packed(rows, args, part == "training")
    print(sorted({f"{r['op']}: {r.get('winner', r.get('variant', '?'))}" for r in warplap.store.ls()}))


if __name__ == "__main__":
    sys.exit(main())
