"""What ``topk_softmax`` is called with at the least, and calls with each argument that it may have."""

import torch

CALL = {"x": torch.randn(6, 16), "k": 3}, [{"renormalize": False}]
