"""torch.mm."""

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def rivals(f):
    m, n, k, dtype = int(f["m"]), int(f["n"]), int(f["k"]), DTYPES[f["dtype"]]
    a, b = (torch.rand(s, dtype=torch.float32).mul(2).sub(1).to(dtype) for s in ((m, k), (k, n)))
    c = torch.empty((m, n), dtype=dtype)
    return {"torch.mm": lambda: torch.mm(a, b, out=c)}
