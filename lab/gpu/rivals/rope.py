"""Rotary position embedding as models have it: ours, and the form of Hugging Face's models."""

import math

import torch
import warplap
from fused_parts.tensors import BF16, make


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def llama(q, k, cos, sin):
    """The form of Hugging Face's models."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def turns(tokens):
    """Of a block of an 8B model, 32 and 8 heads of 128: name, bytes that must move, ours, torch's and its inputs."""
    d, make_heads = 128, lambda h: make(1, tokens, h, 128).transpose(1, 2)
    q, k = make_heads(32), make_heads(8)
    angles = torch.rand(1, tokens, d // 2, device="cuda").repeat(1, 1, 2) * math.tau
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)
    ours = lambda: warplap.rope(q, k, cos, sin, wide=True, heads_dim=1)
    yield "q and k apart", 4 * (q.numel() + k.numel()), ours, llama, (q, k, cos, sin)
    qkv, bias = make(tokens, 48 * d), make(48 * d)
    half = [t[0, :, : d // 2].contiguous() for t in (cos, sin)]

    def whole(qkv, bias, cos, sin):
        q, k, v = (qkv + bias).view(1, tokens, 48, d).split([32, 8, 8], 2)
        return *llama(q.transpose(1, 2), k.transpose(1, 2), cos, sin), v

    ours = lambda: warplap.rope(qkv.view(tokens, 48, d), None, *half, plain=8, bias=bias)
    yield "qkv and its bias", 4 * qkv.numel(), ours, whole, (qkv, bias, cos, sin)
    heads = qkv.clone().view(tokens, 48, d)
    ours = lambda: warplap.rope(heads[:, :32], heads[:, 32:40], *half, inplace=True)
    split = lambda qkv: (t.transpose(1, 2) for t in qkv.view(1, tokens, 48, d).split([32, 8, 8], 2)[:2])
    yield "qkv in place", 4 * 40 * d * tokens, ours, lambda qkv, cos, sin: llama(*split(qkv), cos, sin), (qkv, cos, sin)
