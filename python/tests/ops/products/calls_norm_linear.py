"""What ``norm_linear`` is called with at the least, and calls with each argument that it may have."""

import torch

r = torch.randn
W = r(8, 16)
CALL = {"x": r(6, 16), "w": W}, [
    {"weight": r(16)}, {"bias": r(8)}, {"activation": "silu"}, {"up": W}, {"residual": r(6, 8)}, {"times": r(6, 8)},
    {"eps": 1e-5},
]  # fmt: skip
