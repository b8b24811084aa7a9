"""What ``int_mm`` is called with at the least, and calls with each argument that it may have."""

import torch

CODES = torch.randn(16, 32).to(torch.int8)
CALL = {"a": CODES, "b": CODES.t()}, [{"out": torch.empty(16, 16).int()}]
