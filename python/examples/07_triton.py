"""The decorator in place of triton.autotune. Runs on a GPU, or with TRITON_INTERPRET=1 on the CPU."""

import os
import sys

import torch

import warplap

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    sys.exit(print("There is no GPU here for Triton's kernels; TRITON_INTERPRET=1 runs this example on the CPU."))

import triton
import triton.language as tl


@warplap.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((128, 4), (512, 4), (1024, 8))],
    key=["n"],
)
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(10_000, device=device)
out = torch.empty_like(x)
scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 2.0)
assert torch.equal(out, x * 2)
print(scale.best_config)
