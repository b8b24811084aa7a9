"""What ``linear`` is called with at the least, and calls with each argument that it may have."""

import torch

r = torch.randn
CALL = {"x": r(6, 16), "w": r(8, 16)}, [
    {"bias": r(8)}, {"activation": "relu"}, {"residual": r(6, 8)}, {"times": r(6, 8)}, {"out": torch.empty(6, 8)},
]  # fmt: skip
