"""Tensors in bfloat16 on a GPU, how far answers are off, and tables: what the scripts of fused layers share."""

import math

import torch

BF16 = torch.bfloat16


def make(*shape, scale=1.0):
    return (torch.randn(*shape, device="cuda") * scale).to(BF16)


def weight(n, k):
    return make(n, k, scale=k**-0.5)


def off(got, right):
    return ((got.double() - right).norm() / right.norm()).item()


def poison(shape):
    """Memory of that size in torch's pool holds NaN."""
    for _ in range(2):
        torch.full(shape, math.nan, device="cuda", dtype=BF16)


def head(*columns):
    print("\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)


def line(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
