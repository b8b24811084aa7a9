"""Whole layers on the CPU, forward and with all gradients, beside torch's own, by torch's own Timer.

    python lab/cpu/layers.py [--turns 7]

Needs torch and the package (a release build). Both sides take turns; a ratio is the median over the turns. Where our
step does not win its heat, torch's own answers, and the ratio is that of two equal steps but for a lookup.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch
import warplap
from torch.utils.benchmark import Timer
from warplap.nn import Linear, SparseLinear

DENSE = [(64, 256, 256, None), (64, 256, 256, "gelu"), (256, 1024, 1024, None), (128, 768, 3072, None)]
SPARSE = [(128, 1024, 32), (512, 2048, 64)]


def step(layer, x):
    """A forward pass and the gradients of the input and of every parameter."""

    def run():
        y = layer(x)
        torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))

    return run


def answers(layer, x):
    """Whose step a call of a dense layer is."""
    node = layer(x).grad_fn
    node = node if layer.activation is None else node.next_functions[0][0]
    return "our node" if type(node).__name__ == "linearBackward" else "torch's own"


def beside(name, ours, theirs, turns):
    ours(), theirs()
    took = lambda call: Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.15).median * 1e6
    # Who comes first takes turns too.
    pairs = [(took(ours), took(theirs)) if turn % 2 else (took(theirs), took(ours))[::-1] for turn in range(turns)]
    ratios = [right / left for left, right in pairs]
    times = [statistics.median(side) for side in zip(*pairs)]
    spread = f"{min(ratios):.2f} … {max(ratios):.2f}"
    print(f"{name:48s} {times[0]:9.0f} {times[1]:9.0f} {statistics.median(ratios):6.2f}×   {spread}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    warplap.configure(in_memory=True, budget=2.0)
    print(f"warplap {warplap.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'layer':48s} {'warplap µs':>9s} {'torch µs':>9s} {'ratio':>6s}   least … most")
    print("dense layers, forward and backward, and who answers:")
    for rows, k, n, activation in DENSE:
        layer, own = torch.nn.Linear(k, n), Linear(k, n, activation=activation)
        own.load_state_dict(layer.state_dict())
        dense = layer if activation is None else torch.nn.Sequential(layer, torch.nn.GELU())
        x, name = torch.randn(rows, k, requires_grad=True), f"{rows}×{k}→{n}" + (f", {activation}" if activation else "")
        beside(f"Linear {name}, {answers(own, x)}", step(own, x), step(dense, x), turns)
    for rows, k, block in SPARSE:
        dense = torch.nn.Linear(k, k)
        mask = torch.rand(k // block, k // block) < 0.125
        mask[0, 0] = True
        own, x = SparseLinear.from_dense(dense, mask, block), torch.randn(rows, k, requires_grad=True)
        name = f"SparseLinear {rows}×{k}, blocks of {block}"
        with torch.no_grad():
            beside(f"{name}, forward", lambda: own(x), lambda: dense(x), turns)
        beside(f"{name}, forward and backward", step(own, x), step(dense, x), turns)


if __name__ == "__main__":
    main()
