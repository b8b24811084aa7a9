"""Block-sparse matrices of torch on a GPU: m, k, n, block, share of stored blocks."""

import torch

POINTS = [
    (4096, 4096, 4096, 64, 0.125),
    (4096, 4096, 4096, 16, 0.125),
    (4096, 4096, 4096, 32, 0.125),
    (4096, 4096, 4096, 128, 0.125),
    (4096, 4096, 256, 64, 0.125),
]


def matrix(m, k, n, bs, density, dtype=torch.float16):
    """A matrix with as many blocks in every block row, drawn at random, a dense partner and an output."""
    rows, across = m // bs, k // bs
    each = max(1, round(across * density))
    col = torch.rand(rows, across, device="cuda").argsort(1)[:, :each].sort(1).values.flatten()
    crow = torch.arange(rows + 1, device="cuda") * each
    values = torch.randn(rows * each, bs, bs, device="cuda").to(dtype)
    a = torch.sparse_bsr_tensor(crow, col, values, (m, k))
    return a, torch.randn(k, n, device="cuda").to(dtype), torch.empty(m, n, device="cuda", dtype=dtype)
