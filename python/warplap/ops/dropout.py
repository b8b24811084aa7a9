"""Dropout by place: the rule of every kernel in torch's own operators, and how seeds are given."""

from __future__ import annotations

from typing import Any

from ..operator.optional_torch import Tensor, torch

_LOW = 0xFFFFFFFF


def _below(dropout: float) -> int:
    """Half-words below this are dropped."""
    return min(round(dropout * 65536), 65535)


def _philox(counter: Tensor, seed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox 4x32-10: four words a counter, with the stream as the counter's upper half."""
    k0, k1, stream = seed[0] & _LOW, seed[0] >> 32 & _LOW, seed[1]
    c0, c1 = counter & _LOW, counter >> 32 & _LOW
    c2, c3 = (stream & _LOW).expand_as(counter), (stream >> 32 & _LOW).expand_as(counter)
    for _ in range(10):
        p, q = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (q >> 32 & _LOW) ^ c1 ^ k0, q & _LOW, (p >> 32 & _LOW) ^ c3 ^ k1, p & _LOW
        k0, k1 = k0 + 0x9E3779B9 & _LOW, k1 + 0xBB67AE85 & _LOW
    return c0, c1, c2, c3


def _as_factors(halves: Tensor, dropout: float) -> Tensor:
    below = _below(dropout)
    return (halves >= below).to(torch.float32) * (65536.0 / (65536.0 - below))


def factors(count: int, seed: Tensor, dropout: float) -> Tensor:
    """What so many elements are multiplied with: zero, or what is kept grows by. A half-word an element."""
    counter = torch.arange(-(-count // 8), device=seed.device, dtype=torch.int64)
    words = torch.stack(_philox(counter, seed), -1)
    halves = torch.stack((words & 0xFFFF, words >> 16), -1).reshape(-1)[:count]
    return _as_factors(halves, dropout)


def of_weights(b: int, h: int, sq: int, sk: int, seed: Tensor, dropout: float, first: int = 0) -> Tensor:
    """The same for attention's weights, shaped (b, h, sq, sk), from head number ``first`` on: Philox 2x32-7 with a key
    and offsets of each head. Of every sixteen queries and sixteen keys, i and i + 8 and j and j + 8 share a call."""
    heads = _philox(torch.arange(first, first + b * h, device=seed.device, dtype=torch.int64), seed)
    key, row, column = (word.view(b, h, 1, 1) for word in heads[:3])
    i, j = (torch.arange(n, device=seed.device, dtype=torch.int64) for n in (sq, sk))
    place = lambda at: at >> 4 << 3 | at & 7
    c0 = (row + place(i)[:, None] & _LOW).expand(b, h, sq, sk)
    c1 = column + place(j) & _LOW
    for _ in range(7):
        p = c0 * 0xD256D193
        c0, c1, key = (p >> 32 & _LOW) ^ key ^ c1, p & _LOW, key + 0x9E3779B9 & _LOW
    words = torch.where((i & 8 != 0)[:, None], c1, c0)
    return _as_factors(torch.where(j & 8 != 0, words >> 16, words & 0xFFFF), dropout)


def drawn(seed: Any, device: Any) -> Tensor:
    """Seed and stream as kernels take them: given as numbers or as a tensor, or drawn by torch."""
    if seed is None:
        return torch.randint(0, 2**62, (2,), device=device)
    if isinstance(seed, Tensor):
        if seed.dtype != torch.int64 or tuple(seed.shape) != (2,) or seed.device != torch.device(device):
            raise ValueError(f"seed: is {seed.dtype} of shape {list(seed.shape)}, expected two int64 beside x")
        return seed.contiguous()
    pair = (seed, 0) if isinstance(seed, int) else tuple(seed)
    return torch.tensor(pair, dtype=torch.int64, device=device)
