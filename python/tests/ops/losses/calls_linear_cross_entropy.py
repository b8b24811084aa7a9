"""What ``linear_cross_entropy`` is called with at the least, and calls with each argument that it may have."""

import torch

r = torch.randn
CALL = {"x": r(6, 16), "w": r(8, 16), "labels": torch.arange(6)}, [
    {"bias": r(8)}, {"ignore_index": 3}, {"label_smoothing": 0.1}, {"z_loss": 0.1}, {"reduction": "sum"}, {"chunk": 4},
]  # fmt: skip
