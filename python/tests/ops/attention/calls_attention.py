"""What ``attention`` is called with at the least, and calls with each argument that it may have."""

import torch

import warplap

r = torch.randn
ints = lambda *values: torch.tensor(values, dtype=torch.int32)
Q = r(1, 2, 8, 16)
ROWS = r(12, 2, 16)
PACKED = {"q": ROWS, "k": ROWS, "v": ROWS, "cu_seqlens_q": ints(0, 4, 12)}
PAGED = {"k": r(3, 16, 2, 16), "v": r(3, 16, 2, 16), "block_table": ints(0, 1).view(1, 2), "align": "bottom_right"}

CALL = {"q": Q, "k": Q, "v": Q}, [
    {"attn_mask": r(8, 8)}, {"mask": r(8, 8)}, {"is_causal": True}, {"scale": 0.5}, {"enable_gqa": True},
    {"dropout_p": 0.1, "seed": 3}, {"out": torch.empty_like(Q)}, {"window": 2}, {"softcap": 5.0},
    {"alibi_slopes": torch.ones(2)}, {"align": "bottom_right"}, {"lengths": ints(5)}, PAGED, PACKED,
    PACKED | {"cu_seqlens_k": ints(0, 4, 12)}, PACKED | {"max_seqlen_q": 8, "max_seqlen_k": 8},
    {"tiles": warplap.tiles(torch.ones(1, 1, dtype=torch.bool), 32)},
]  # fmt: skip
