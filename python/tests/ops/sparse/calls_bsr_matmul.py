"""What ``bsr_matmul`` is called with at the least, and calls with each argument that it may have."""

import torch

r = torch.randn
CALL = {"a": r(16, 16).to_sparse_bsr((8, 8)), "b": r(16, 4)}, [{"out": torch.empty(16, 4)}]
