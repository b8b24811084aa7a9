"""What a call costs before and around its kernel, beside torch's own calls, in one process.

Each line is the least of many short windows: on a busy machine the others measure the neighbours.
"""

from __future__ import annotations

import functools
import sys
import timeit
import warnings

import torch

import warplap

warnings.simplefilter("ignore")


def least(call, loops: int = 100, windows: int = 400) -> float:
    """Microseconds of one call."""
    call()
    return min(timeit.repeat(call, number=loops, repeat=windows)) / loops * 1e6


def trained(call, *inputs):
    """A call and its gradients."""
    inputs = [t.clone().requires_grad_() for t in inputs]
    along = torch.ones_like(call(*inputs))
    return lambda: torch.autograd.grad(call(*inputs), inputs, along)


def unwatched(layer, x):
    """A layer as a program that only asks it runs it."""
    layer.requires_grad_(False)
    return lambda: layer(x)


def side_by_side(calls, loops: int = 50, windows: int = 200) -> None:
    """Microseconds of calls whose windows take turns."""
    took = {name: least(call, loops, 1) for name, call in calls.items()}
    for _ in range(windows):
        for name, call in calls.items():
            took[name] = min(took[name], timeit.timeit(call, number=loops) / loops * 1e6)
    for name, least_of in took.items():
        print(f"{name:40s} {least_of:8.3f} µs", flush=True)


def asked(layer, x):
    """A layer as a program runs it that keeps no gradients."""

    def call():
        with torch.no_grad():
            return layer(x)

    return call


def compiled(layers, x) -> None:
    """Layers as torch.compile makes them."""
    quick = {name: torch.compile(layer) for name, layer in layers.items()}
    side_by_side({f"{name}, compiled, no gradients": asked(layer, x) for name, layer in quick.items()})
    torch._dynamo.reset()  # a program has one of the two
    y = x.clone().requires_grad_()
    side_by_side({f"{name}, compiled, forward": functools.partial(layer, y) for name, layer in quick.items()})
    leaves = {name: [y, *layer.parameters()] for name, layer in layers.items()}
    along = torch.ones(len(x), 64)
    step = lambda name: lambda: torch.autograd.grad(quick[name](y), leaves[name], along)
    side_by_side({f"{name}, compiled, with gradients": step(name) for name in quick})


def main() -> None:
    torch.set_num_threads(1)
    warplap.configure(in_memory=True, budget=0.3, threads=1)
    a, b, c = torch.randn(8, 8), torch.randn(8, 8), torch.empty(8, 8)
    s, d, e = torch.randn(16, 16).to_sparse_bsr((8, 8)), torch.randn(16, 1), torch.empty(16, 1)
    q, h = torch.randn(1, 1, 1, 8), torch.randn(1, 2, 16, 16).requires_grad_()
    attend = torch.nn.functional.scaled_dot_product_attention
    x, w, y = torch.randn(1, 8), torch.randn(8), torch.empty(1, 8)
    v, z, dense = a.clone().requires_grad_(), torch.randn(8, 64), torch.nn.Linear(64, 64)
    sparse = warplap.SparseLinear.from_dense(dense, torch.eye(2) > 0)
    prepared = warplap._warplap.Prepared("norm:rows=1,n=8,dtype=f32")
    native = warplap._warplap
    lines = {
        "an empty call": native.mode,
        "choosing: three tensors, key, lookup": lambda: native.matmul_known(a, b, c),
        "matmul(a, b, out=c) of 8x8": lambda: warplap.matmul(a, b, out=c),
        "torch.mm(a, b, out=c)": lambda: torch.mm(a, b, out=c),
        "matmul(a, b)": lambda: warplap.matmul(a, b),
        "a @ b": lambda: a @ b,
        "matmul(a, b) and its gradients": trained(warplap.matmul, a, b),
        "a @ b and its gradients": trained(torch.matmul, a, b),
        "linear(a, b, w) and its gradients": trained(warplap.linear, a, b, w),
        "torch: linear and its gradients": trained(torch.nn.functional.linear, a, b, w),
        "linear(v, b, w) alone, gradients wanted": lambda: warplap.linear(v, b, w),
        "torch: linear alone, gradients wanted": lambda: torch.nn.functional.linear(v, b, w),
        "SparseLinear of 64x64, no gradients": unwatched(sparse, z),
        "torch: nn.Linear of 64x64, no gradients": unwatched(dense, z),
        "bsr_matmul(s, d, out=e) of 16x16": lambda: warplap.bsr_matmul(s, d, out=e),
        "torch: s @ d": lambda: s @ d,
        "attention of one query and key": lambda: warplap.attention(q, q, q),
        "torch: scaled_dot_product_attention": lambda: attend(q, q, q),
        "a prepared norm of 1x8 into y": lambda: prepared(x, None, w, None, y),
        "norm(x, w)": lambda: warplap.norm(x, w),
        "torch: rms_norm(x, (8,), w)": lambda: torch.nn.functional.rms_norm(x, (8,), w, 1e-5),
        "torch.ops.warplap.matmul_out": lambda: torch.ops.warplap.matmul_out(a, b, c),
        "torch.ops.warplap.matmul": lambda: torch.ops.warplap.matmul(a, b),
    }
    print(f"warplap {warplap.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    for name, call in lines.items():
        print(f"{name:40s} {least(call):8.3f} µs", flush=True)
    attention = {"attention of 16": warplap.attention, "torch: attention of 16": attend}
    side_by_side({f"{name}, gradients wanted": functools.partial(call, h, h, h) for name, call in attention.items()})
    heads = [h.detach()] * 3
    side_by_side({f"{name}, with gradients": trained(call, *heads) for name, call in attention.items()})
    dense = torch.nn.Linear(64, 64)
    sparse = warplap.SparseLinear.from_dense(dense, torch.eye(2) > 0)
    compiled({"SparseLinear": sparse, "torch: nn.Linear": dense}, z)
    parts = sparse.crow, sparse.col, sparse.values, sparse.bias, 64, z, False
    with torch.no_grad():
        kernel = lambda: torch.ops.warplap.run_bsr_linear(*parts)
        product = lambda: torch.addmm(dense.bias, z, dense.weight.t())
        side_by_side({"SparseLinear, its kernel alone": kernel, "torch: nn.Linear, addmm alone": product})


if __name__ == "__main__":
    main()
