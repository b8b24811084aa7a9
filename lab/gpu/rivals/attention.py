"""The shapes of attention that are compared on a GPU: b, h, sq, sk, d, causal."""

import torch

SHAPES = [
    (1, 8, 512, 512, 64, False),
    (1, 8, 512, 512, 64, True),
    (8, 16, 512, 512, 64, False),
    (4, 32, 1024, 1024, 128, True),
    (4, 16, 2048, 2048, 128, False),
    (2, 16, 4096, 4096, 128, True),
    (2, 16, 4096, 4096, 128, False),
    (2, 16, 4096, 4096, 64, False),
    (1, 16, 16384, 16384, 128, True),
    (1, 16, 16384, 16384, 128, False),
    (1, 32, 1, 4096, 128, False),
    (16, 32, 1, 4096, 128, False),
    (1, 12, 197, 197, 64, False),
    (2, 8, 1000, 1000, 80, False),
]


def tensors(shape):
    b, h, sq, sk, d, causal = shape
    q = torch.randn(b, h, sq, d, device="cuda", dtype=torch.float16)
    k, v = (torch.randn(b, h, sk, d, device="cuda", dtype=torch.float16) for _ in range(2))
    return q, k, v, causal
