"""What ``rope`` is called with at the least, and calls with each argument that it may have."""

import torch

r = torch.randn
TABLE = r(6, 4).cos()
CALL = {"q": r(6, 2, 8), "k": r(6, 1, 8), "cos": TABLE, "sin": TABLE}, [
    {"positions": torch.arange(6, dtype=torch.int32)}, {"interleaved": True}, {"bias": r(24)}, {"inplace": True},
    {"wide": True, "cos": r(6, 8), "sin": r(6, 8)}, {"plain": 1, "k": None}, {"heads_dim": 1},
]  # fmt: skip
