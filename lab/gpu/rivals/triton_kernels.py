"""A plain matmul in Triton with eight configs, under Triton's decorator and under warplap's."""

import triton
import triton.language as tl
import warplap

CONFIGS = [
    triton.Config({"BM": 64, "BN": 64, "BK": bk}, num_warps=warps, num_stages=stages)
    for bk in (32, 64)
    for warps in (4, 8)
    for stages in (2, 3)
]


def product(a, b, c, m, n, k, am, ak, bk, bn, cm, cn, alpha, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        left = tl.load(a + row[:, None] * am + (at + inner)[None, :] * ak)
        right = tl.load(b + (at + inner)[:, None] * bk + column[None, :] * bn)
        total += tl.dot(left, right)
    tl.store(c + row[:, None] * cm + column[None, :] * cn, (total * alpha).to(tl.float16))


def kernels():
    return {
        "triton.autotune": triton.autotune(configs=CONFIGS, key=["m", "n", "k"])(triton.jit(product)),
        "warplap.autotune": warplap.autotune(configs=CONFIGS, key=["m", "n", "k"])(triton.jit(product)),
    }
