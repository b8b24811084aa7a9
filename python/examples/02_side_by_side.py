"""Everyone side by side, torch included: time, interval, rate, and who was rejected why."""

import torch

import warplap

q, k, v = (torch.randn(1, 4, 128, 64) for _ in range(3))
print(warplap.benchmark(warplap.attention, q, k, v, is_causal=True, budget=1.0))
