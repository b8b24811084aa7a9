"""What ``cross_entropy`` is called with at the least, and calls with each argument that it may have."""

import torch

CALL = {"logits": torch.randn(6, 16), "labels": torch.arange(6)}, [
    {"ignore_index": 3}, {"label_smoothing": 0.1}, {"z_loss": 0.1}, {"reduction": "sum"}, {"inplace": True},
]  # fmt: skip
