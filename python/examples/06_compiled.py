"""Inside torch.compile: one graph, dynamic shapes, gradients; choosing happens when the operator runs."""

import torch

import warplap


@torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return warplap.linear(x, w, activation="gelu").sum()


w = torch.randn(32, 64, requires_grad=True)
for rows in (8, 12, 20):
    model(torch.randn(rows, 64), w).backward()
print(w.grad.norm().item() > 0)
