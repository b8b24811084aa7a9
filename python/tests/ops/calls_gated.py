"""What ``gated`` is called with at the least, and calls with each argument that it may have."""

import torch

X = torch.randn(6, 16)
CALL = {"a": X, "b": X}, [{"activation": "gelu"}, {"join": "add"}, {"out": torch.empty_like(X)}]
