"""A product: the first call races the variants, later ones go straight to the winner."""

import torch

import warplap

a, b = torch.randn(256, 256), torch.randn(256, 256)
c = warplap.matmul(a, b)
assert torch.allclose(c, a @ b, atol=1e-3)
print(warplap.explain(warplap.matmul, a, b))
