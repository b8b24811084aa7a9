"""attention over squares of queries and keys (`warplap.tiles`) on a GPU, beside FlexAttention and torch's own with the
mask written out.

    python lab/gpu/attention_tiles.py [--parts forward,training] [--rounds 15] [--budget 8]
                                      [--sizes 2x16x8192x128,4x16x4096x64]

bf16, squares of 128. FlexAttention is compiled with a block mask of the same map, whose blocks are all whole ones.
`sdpa` has the map written out as a bool mask for every pair, and `dense` is torch's own without any mask. Forward calls
are captured and replayed by the clock of use (lab/gpu/products.py), steps are timed as lab/gpu/attention.py times them.
Ours is held to double precision on the last head first, on poisoned memory.
"""

import argparse
import sys

import torch
import torch.nn.functional as F
import warplap
from attention import peak, row, steps
from attention_packed import holds
from products import race
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

SIDE = 128


def patterns(squares):
    """Maps that long sequences are given: neighbours and a few that all see, documents of unequal length, a quarter and a
    tenth at random with every square's own."""
    at = torch.arange(squares, device="cuda")
    away = at[:, None] - at
    ends = torch.tensor([0.1, 0.35, 0.5, 0.9], device="cuda") * squares
    document = torch.bucketize(at.float(), ends)
    some = torch.rand(squares, squares, device="cuda") < 0.25
    return {
        "near 5 squares, 2 seen by all": (away.abs() <= 2) | (at < 2) | (at < 2)[:, None],
        "documents": document[:, None] == document,
        "a quarter at random": some | (away == 0),
        "a tenth at random": (torch.rand(squares, squares, device="cuda") < 0.1) | (away == 0),
    }


def last_of(q, k, v, whole):
    """The last head of the last batch in double precision."""
    one = [t[-1, -1].double() for t in (q, k, v)]
    scores = (one[0] @ one[1].T * one[0].shape[-1] ** -0.5).masked_fill(~whole, float("-inf"))
    return scores.softmax(-1) @ one[2]


def measure(rows, args, sizes, training):
    b, h, s, d = sizes
    make = lambda: torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16, requires_grad=training)
    leaves, grad = [make() for _ in range(3)], torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16)
    for name, seen in patterns(s // SIDE).items():
        tiles = warplap.tiles(seen, SIDE)
        whole = seen.repeat_interleave(SIDE, 0).repeat_interleave(SIDE, 1)
        blocks = create_block_mask(lambda b, h, i, j: seen[i // SIDE, j // SIDE], None, None, s, s, device="cuda")
        torch._dynamo.reset()
        compiled = torch.compile(flex_attention)
        calls = {
            "warplap": lambda q, k, v: warplap.attention(q, k, v, tiles=tiles),
            "flex": lambda q, k, v: compiled(q, k, v, block_mask=blocks),
            "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, whole),
            "dense": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        }
        label = f"{b}×{h}×{s}×{d}, {name} ({tiles.live} %)"
        with torch.no_grad():
            calls["warplap"](*leaves)
            torch.full_like(leaves[0], float("nan"))
            holds(label, calls["warplap"](*leaves)[-1, -1], last_of(*leaves, whole))
        if not training:
            with torch.no_grad():
                lanes = {lane: lambda i=0, call=call: call(*leaves) for lane, call in calls.items()}
                row(rows, "forward", label, race(lanes, 1, args.rounds, "use"))
            continue
        gradients = torch.autograd.grad(calls["warplap"](*leaves), leaves, grad)
        wide = [t.detach()[-1:, -1:].double().requires_grad_() for t in leaves]
        wanted = torch.autograd.grad(last_of(*wide, whole), wide, grad[-1, -1].double())
        for what, ours, right in zip("qkv", gradients, wanted):
            holds(f"d{what} of {label}", ours[-1, -1], right[0, 0])
        peaks = [peak(calls[lane], leaves, grad) for lane in ("warplap", "flex")]
        times = {lane: [] for lane in calls}
        for i in range(args.rounds + 2):
            for lane, call in calls.items():
                took = steps(call, leaves, grad)
                if i >= 2:
                    times[lane].append(took)
        row(rows, "training", label, times, "{:.0f} / {:.0f} MiB".format(*peaks))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="forward,training")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of tuning a problem")
    parser.add_argument("--sizes", default="2x16x8192x128,4x16x4096x64")
    args = parser.parse_args()
    warplap.configure(budget=args.budget, bucket="exact")
    torch.manual_seed(1)
    rows = []
    for part in args.parts.split(","):
        print(f"\n| squares of {SIDE}, bf16: {part} | warplap µs | others µs | best / warplap | |\n|---|---|---|---|---|")
        for sizes in args.sizes.split(","):
            measure(rows, args, [int(n) for n in sizes.split("x")], part == "training")
    print(sorted({f"{r['op']}: {r.get('winner', r.get('variant', '?'))}" for r in warplap.store.ls()}))


if __name__ == "__main__":
    sys.exit(main())
