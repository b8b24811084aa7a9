"""Attention's backward pass on a GPU beside torch's own: dQ, dK and dV from Q, K, V, O, log-sum-exps and the gradient of O.

    python lab/gpu/attention_grad.py [--rounds 20] [--budget 6] [--only TEXT] [--json FILE]

Calls are captured in graphs and replayed in alternating rounds by the clock of use (lab/gpu/products.py). torch's lanes
are the backward operators of its flash and cuDNN attentions, called directly on what their own forward passes left;
ours reads what flash's left. Every lane's gradients of one head are held to double precision before it is timed.
"""

import argparse
import json
import math
import statistics
import sys
import time

import torch
import warplap
from products import quartiles, race

aten = torch.ops.aten
# batch, heads, length, width of heads, causal
SHAPES = [
    (2, 16, 4096, 128, True),
    (2, 16, 4096, 128, False),
    (4, 16, 2048, 64, True),
    (4, 16, 2048, 64, False),
    (1, 16, 8192, 128, True),
    (8, 16, 512, 64, True),
    (1, 8, 512, 64, False),
    (2, 16, 1024, 96, False),
    (2, 8, 1000, 80, False),
    (2, 16, 2048, 256, True),
]


class Case:
    """One problem: its tensors, and a call for each lane that writes its own gradients."""

    def __init__(self, b, h, s, d, causal):
        make = lambda: torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16)
        self.q, self.k, self.v, self.grad = make(), make(), make(), make()
        self.causal, self.scale = causal, d**-0.5
        self.problem = f"attention_grad:b={b},h={h},sq={s},sk={s},d={d},dtype=bf16,causal={str(causal).lower()}"
        self.flops = 2.0 * b * h * (s * (s + 1) / 2 if causal else s * s) * 5 * d
        self.gradients, self.lanes = {}, {}
        self.flash()
        self.cudnn()

    def flash(self):
        q, k, v = self.q, self.k, self.v
        out, lse, *rest = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, self.causal, False, scale=self.scale)
        cum_q, cum_k, max_q, max_k, seed, offset = rest[:6]
        self.out, self.lse = out.contiguous(), lse[..., : q.shape[2]].contiguous()

        def call(i=0):
            self.gradients["flash"] = aten._scaled_dot_product_flash_attention_backward(
                self.grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, self.causal, seed, offset, scale=self.scale
            )[:3]

        self.lanes["flash"] = call
        mine = [torch.empty_like(t) for t in (q, k, v)]
        tensors = {"q": q, "k": k, "v": v, "out": self.out, "lse": self.lse, "grad": self.grad}
        tensors |= dict(zip(("dq", "dk", "dv"), mine))
        self.mine, self.lanes["warplap"] = mine, lambda i=0: warplap.run(self.problem, tensors)

    def cudnn(self):
        q, k, v = self.q, self.k, self.v
        try:
            out, lse, *rest = aten._scaled_dot_product_cudnn_attention(
                q, k, v, None, True, 0.0, self.causal, False, scale=self.scale
            )
        except RuntimeError as why:
            print(f"cuDNN refuses {self.problem}: {str(why).splitlines()[0]}", file=sys.stderr)
            return
        cum_q, cum_k, max_q, max_k, seed, offset = rest[:6]

        def call(i=0):
            self.gradients["cudnn"] = aten._scaled_dot_product_cudnn_attention_backward(
                self.grad, q, k, v, out, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, self.causal, scale=self.scale
            )

        self.lanes["cudnn"] = call

    def prove(self, name):
        """The gradients of the last head, from poisoned outputs, beside double precision."""
        for t in self.mine:
            t.fill_(math.nan)
        self.lanes[name]()
        gradients = self.mine if name == "warplap" else self.gradients[name]
        wide = [t[-1, -1].double().requires_grad_() for t in (self.q, self.k, self.v)]
        scores = wide[0] @ wide[1].T * self.scale
        if self.causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
        right = torch.autograd.grad(scores.softmax(-1) @ wide[2], wide, self.grad[-1, -1].double())
        for which, (got, want) in zip("qkv", zip(gradients, right)):
            off = ((got[-1, -1].double() - want).norm() / want.norm()).item()
            if not off < 0.01:
                raise SystemExit(f"{self.problem}: d{which} of {name} is off by {off}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of tuning a problem")
    parser.add_argument("--only", default="", help="problems that contain this text")
    parser.add_argument("--json", help="also write JSON lines to this file")
    args = parser.parse_args()
    begun = time.monotonic()
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "warplap": warplap.__version__}
    print(f"{torch.cuda.get_device_name()}, " + ", ".join(f"{k} {v}" for k, v in versions.items()) + f"; {args.rounds} rounds\n")
    warplap.configure(budget=args.budget, bucket="exact")
    print("| batch × heads × length × width | winner | warplap µs | TFLOP/s | cuDNN µs | flash µs | best of torch / warplap | tuned in s |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for b, h, s, d, causal in SHAPES:
        name = f"{b} × {h} × {s} × {d}" + (" causal" if causal else "")
        if args.only not in name:
            continue
        case, started = Case(b, h, s, d, causal), time.monotonic()
        tuned = warplap.tune([case.problem], budget=args.budget, device="cuda")[0]
        seconds = time.monotonic() - started
        for lane in case.lanes:
            case.prove(lane)
        times = race(case.lanes, 1, args.rounds, "use")
        middle = {lane: quartiles(taken)[0] * 1e6 for lane, taken in times.items()}
        best = min((lane for lane in middle if lane != "warplap"), key=middle.get)
        ratio = quartiles([t / w for w, t in zip(times["warplap"], times[best])])
        rows.append({"problem": case.problem, "winner": tuned.variant, "us": middle, "ratio": ratio, "tuned_s": seconds})
        shown = " | ".join(f"{middle[lane]:.1f}" if lane in middle else "–" for lane in ("cudnn", "flash"))
        print(
            f"| {name} | `{tuned.variant}` | {middle['warplap']:.1f} | {case.flops / middle['warplap'] * 1e-6:.0f} | {shown} "
            f"| **{ratio[0]:.2f}** ({ratio[1]:.2f}–{ratio[2]:.2f}) | {seconds:.1f} |",
            flush=True,
        )
    if rows:
        mean = math.exp(statistics.fmean(math.log(row["ratio"][0]) for row in rows))
        print(f"\n{len(rows)} rows; geometric mean {mean:.3f}; {time.monotonic() - begun:.0f} s in all")
    if args.json:
        with open(args.json, "w") as out:
            out.writelines(json.dumps({**row, "versions": versions}) + "\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
