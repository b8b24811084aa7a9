"""What ``norm`` is called with at the least, and calls with each argument that it may have."""

import torch

r = torch.randn
X = r(6, 16)
CALL = {"x": X}, [
    {"weight": r(16)}, {"bias": r(16)}, {"residual": X}, {"kind": "layer"}, {"eps": 1e-6}, {"before": r(16)},
    {"dropout": 0.1, "seed": 3}, {"quant": "int8"},
]  # fmt: skip
