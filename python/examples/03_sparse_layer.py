"""A sparse layer from a dense one: half of the blocks stay, and it trains."""

import torch

import warplap

torch.manual_seed(0)
dense = torch.nn.Linear(128, 128)
size = dense.weight.reshape(4, 32, 4, 32).abs().sum((1, 3))
layer = warplap.SparseLinear.from_dense(dense, size >= size.median(), block=32)
print(layer)

x, target = torch.randn(64, 128), torch.randn(64, 128)
optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
for step in range(21):
    loss = torch.nn.functional.mse_loss(layer(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: {loss.item():.3f}")
