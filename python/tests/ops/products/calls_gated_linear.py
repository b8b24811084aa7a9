"""What ``gated_linear`` is called with at the least, and calls with each argument that it may have."""

import torch

X, W = torch.randn(6, 16), torch.randn(8, 16)
CALL = {"x": X, "w_gate": W, "w_up": W}, [{"activation": None}, {"out": torch.empty(6, 8)}]
