"""torch's scaled_dot_product_attention."""

import torch
import torch.nn.functional as F

from .gemm import DTYPES


def rivals(f):
    b, h, sq, sk, d = (int(f[x]) for x in ("b", "h", "sq", "sk", "d"))
    hkv, dtype = int(f.get("hkv", h)), DTYPES[f["dtype"]]
    causal = f.get("causal") == "true"
    q, k, v = (torch.rand(b, *s).mul(2).sub(1).to(dtype) for s in ((h, sq, d), (hkv, sk, d), (hkv, sk, d)))
    with torch.no_grad():
        return {"torch SDPA": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=hkv != h)}
