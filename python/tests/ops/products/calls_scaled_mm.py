"""What ``scaled_mm`` is called with at the least, and calls with each argument that it may have."""

import torch

CODES, FACTOR = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.ones(1)
CALL = {"a": CODES, "b": CODES.t(), "scale_a": FACTOR, "scale_b": FACTOR}, [
    {"out_dtype": torch.float32}, {"use_fast_accum": True}, {"out": torch.empty(16, 16).bfloat16()},
]  # fmt: skip
