"""What ``softmax`` is called with at the least, and calls with each argument that it may have."""

import torch

CALL = {"x": torch.randn(6, 16)}, [{"mask": torch.randn(16)}, {"scale": 0.5}]
