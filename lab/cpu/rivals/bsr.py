"""torch's own BSR product, and torch.mm on the densified matrix."""

import torch

from .gemm import DTYPES


def rivals(f):
    m, n, k, bs, dtype = (int(f["m"]), int(f["n"]), int(f["k"]), int(f["bs"]), DTYPES[f["dtype"]])
    rows, columns = m // bs, k // bs
    each = max(1, round(float(f["density"]) * columns))
    crow = torch.arange(0, rows * each + 1, each, dtype=torch.int64)
    col = torch.cat([torch.randperm(columns)[:each].sort().values for _ in range(rows)])
    values = torch.rand(rows * each, bs, bs).mul(2).sub(1).to(dtype)
    a = torch.sparse_bsr_tensor(crow, col, values, size=(m, k))
    dense, b = a.to_dense(), torch.rand(k, n).mul(2).sub(1).to(dtype)
    c = torch.empty((m, n), dtype=dtype)
    return {"torch BSR": lambda: a @ b, "torch.mm densified": lambda: torch.mm(dense, b, out=c)}
