"""The CUDA half of the door: torch's own implementations, raced on the device by the same rules."""

from __future__ import annotations

import logging
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _callables, _warplap

_log = logging.getLogger("warplap")


def _race(op: str, key: str, ways: dict[str, Callable[..., Tensor]], args: tuple[Any, ...]) -> Callable[..., Tensor]:
    """The way of choice for a key; while a stream is captured, the first one unless the store knows better."""
    chosen = _callables.choose_way(op, key, ways, args)
    return ways[chosen]


def _describe(*tensors: Tensor | None) -> str:
    return _callables.describe([t for t in tensors if t is not None])


_told: set[str] = set()


def matmul(a: Tensor, b: Tensor, out: Tensor) -> None:
    """``a @ b`` on the device, by the native kernels and cuBLASLt; torch's own where those cannot be had."""
    try:
        _warplap.matmul_into(a, b, out)
    except NotImplementedError as why:
        if str(why) not in _told:  # once is enough
            _told.add(str(why))
            _log.warning("torch.mm answers: %s", why)
        torch.mm(a, b, out=out)


def _sdpa_with(backend: Any) -> Callable[..., Tensor]:
    from torch.nn.attention import sdpa_kernel

    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
        gqa = q.shape[1] != k.shape[1]
        if backend is None:
            return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=gqa)
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=gqa)

    return run


def _sdpa_ways() -> dict[str, Callable[..., Tensor]]:
    from torch.nn.attention import SDPBackend

    return {
        "torch_default": _sdpa_with(None),
        "torch_flash": _sdpa_with(SDPBackend.FLASH_ATTENTION),
        "torch_cudnn": _sdpa_with(SDPBackend.CUDNN_ATTENTION),
        "torch_efficient": _sdpa_with(SDPBackend.EFFICIENT_ATTENTION),
    }


_ways: dict[str, Callable[..., Tensor]] = {}


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """Attention on the device, by whichever of torch's backends is fastest there and right."""
    global _ways
    _ways = _ways or _sdpa_ways()
    args = (q, k, v, mask, is_causal, scale)
    key = f"{_describe(q, k, v, mask)},causal={is_causal}"
    o = _race("attention_torch", key, _ways, args)(*args)
    # A traced program was promised the order of q.
    return o if o.stride() == q.stride() or o.shape != q.shape else torch.empty_like(q).copy_(o)


def bsr_matmul(
    crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor | None = None
) -> Tensor:
    """Block-sparse times dense on the device, by torch's own kernel."""
    a = torch.sparse_bsr_tensor(crow, col, values, (m, k), check_invariants=False)
    return torch.mm(a, b) if out is None else out.copy_(torch.mm(a, b))
