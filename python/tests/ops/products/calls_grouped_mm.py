"""What ``grouped_mm`` is called with at the least, and calls with each argument that it may have."""

import torch

OFFSETS = torch.tensor([3, 3, 10], dtype=torch.int32)
CALL = {"x": torch.randn(10, 8), "w": torch.randn(3, 8, 16), "offsets": OFFSETS}, []
