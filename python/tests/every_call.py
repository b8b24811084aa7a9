"""Calls of every operator with each of its arguments."""

from __future__ import annotations

import torch

import warplap

r = torch.randn
ints = lambda *values: torch.tensor(values, dtype=torch.int32)
Q = r(1, 2, 8, 16)
ROWS = r(12, 2, 16)
X, W, LABELS = r(6, 16), r(8, 16), torch.arange(6) % 16
CODES, FACTOR = r(16, 32).to(torch.float8_e4m3fn), torch.ones(1)
TABLE = r(6, 4).cos()
PACKED = {"q": ROWS, "k": ROWS, "v": ROWS, "cu_seqlens_q": ints(0, 4, 12)}
PAGED = {"k": r(3, 16, 2, 16), "v": r(3, 16, 2, 16), "block_table": ints(0, 1).view(1, 2), "align": "bottom_right"}

# What each operator is called with at the least, and calls with each argument that it may have.
CALLS = {
    "attention": ({"q": Q, "k": Q, "v": Q}, [
        {"attn_mask": r(8, 8)}, {"mask": r(8, 8)}, {"is_causal": True}, {"scale": 0.5}, {"enable_gqa": True},
        {"dropout_p": 0.1, "seed": 3}, {"out": torch.empty_like(Q)}, {"window": 2}, {"softcap": 5.0},
        {"alibi_slopes": torch.ones(2)}, {"align": "bottom_right"}, {"lengths": ints(5)}, PAGED, PACKED,
        PACKED | {"cu_seqlens_k": ints(0, 4, 12)}, PACKED | {"max_seqlen_q": 8, "max_seqlen_k": 8},
        {"tiles": warplap.tiles(torch.ones(1, 1, dtype=torch.bool), 32)},
    ]),
    "bsr_matmul": ({"a": r(16, 16).to_sparse_bsr((8, 8)), "b": r(16, 4)}, [{"out": torch.empty(16, 4)}]),
    "cross_entropy": ({"logits": X, "labels": LABELS}, [
        {"ignore_index": 3}, {"label_smoothing": 0.1}, {"z_loss": 0.1}, {"reduction": "sum"}, {"inplace": True},
    ]),
    "gated": ({"a": X, "b": X}, [{"activation": "gelu"}, {"join": "add"}, {"out": torch.empty_like(X)}]),
    "gated_linear": ({"x": X, "w_gate": W, "w_up": W}, [{"activation": None}, {"out": torch.empty(6, 8)}]),
    "int_mm": ({"a": CODES.to(torch.int8), "b": CODES.to(torch.int8).t()}, [{"out": torch.empty(16, 16).int()}]),
    "linear": ({"x": X, "w": W}, [
        {"bias": r(8)}, {"activation": "relu"}, {"residual": r(6, 8)}, {"times": r(6, 8)}, {"out": torch.empty(6, 8)},
    ]),
    "linear_cross_entropy": ({"x": X, "w": W, "labels": LABELS % 8}, [
        {"bias": r(8)}, {"ignore_index": 3}, {"label_smoothing": 0.1}, {"z_loss": 0.1}, {"reduction": "sum"}, {"chunk": 4},
    ]),
    "matmul": ({"a": X, "b": W.t()}, [{"out": torch.empty(6, 8)}]),
    "norm": ({"x": X}, [
        {"weight": r(16)}, {"bias": r(16)}, {"residual": X}, {"kind": "layer"}, {"eps": 1e-6}, {"before": r(16)},
        {"dropout": 0.1, "seed": 3}, {"quant": "int8"},
    ]),
    "norm_linear": ({"x": X, "w": W}, [
        {"weight": r(16)}, {"bias": r(8)}, {"activation": "silu"}, {"up": W}, {"residual": r(6, 8)}, {"times": r(6, 8)},
        {"eps": 1e-5},
    ]),
    "rope": ({"q": r(6, 2, 8), "k": r(6, 1, 8), "cos": TABLE, "sin": TABLE}, [
        {"positions": ints(0, 1, 2, 3, 4, 5)}, {"interleaved": True}, {"bias": r(24)}, {"inplace": True},
        {"wide": True, "cos": r(6, 8), "sin": r(6, 8)}, {"plain": 1, "k": None}, {"heads_dim": 1},
    ]),
    "scaled_mm": ({"a": CODES, "b": CODES.t(), "scale_a": FACTOR, "scale_b": FACTOR}, [
        {"out_dtype": torch.float32}, {"use_fast_accum": True}, {"out": torch.empty(16, 16).bfloat16()},
    ]),
    "softmax": ({"x": X}, [{"mask": r(16)}, {"scale": 0.5}]),
    "topk_softmax": ({"x": X, "k": 3}, [{"renormalize": False}]),
}  # fmt: skip
