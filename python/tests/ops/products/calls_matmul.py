"""What ``matmul`` is called with at the least, and calls with each argument that it may have."""

import torch

r = torch.randn
CALL = {"a": r(6, 16), "b": r(8, 16).t()}, [{"out": torch.empty(6, 8)}]
