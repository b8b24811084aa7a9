"""Attention on CUDA devices: torch's backends, raced. The choice is kept, and a call like it goes straight there.

torch's own choice is the one to beat; its backend is not raced a second time under its own name.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import _callables, _warplap
from ._choice import Choice

Way = Callable[[Tensor, Tensor, Tensor, "Tensor | None", bool, "float | None"], Tensor]

DEFAULT = "torch_default"
_BACKENDS = {
    "torch_flash": SDPBackend.FLASH_ATTENTION,
    "torch_cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch_efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def _default(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    gqa = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=gqa)


# Switching a backend on and the others off through torch's context manager takes longer than a small attention.
_SWITCHES: list[tuple[Any, Any, SDPBackend]] = [
    (getattr(torch._C, f"_get_{name}_sdp_enabled", None), getattr(torch._C, f"_set_sdp_use_{name}", None), backend)
    for name, backend in (
        ("flash", SDPBackend.FLASH_ATTENTION),
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
        ("mem_efficient", SDPBackend.EFFICIENT_ATTENTION),
        ("math", SDPBackend.MATH),
    )
]


def _by(backend: SDPBackend) -> Way:
    def usual(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
        with sdpa_kernel(backend):
            return _default(q, k, v, mask, causal, scale)

    if any(get is None or put is None for get, put, _ in _SWITCHES):
        return usual
    switches = [(get, put, own == backend) for get, put, own in _SWITCHES]

    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
        before = [get() for get, _, _ in switches]
        try:
            for (_, put, wanted), now in zip(switches, before):
                if now != wanted:
                    put(wanted)
            return _default(q, k, v, mask, causal, scale)
        finally:
            for (_, put, wanted), now in zip(switches, before):
                if now != wanted:
                    put(now)

    return run


_WAYS: dict[str, Way] = {DEFAULT: _default, **{name: _by(backend) for name, backend in _BACKENDS.items()}}


def ways(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> dict[str, Way]:
    """torch's choice, and the backends it would not choose."""
    try:
        gqa = q.shape[1] != k.shape[1]
        own = torch._fused_sdp_choice(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=gqa)
    except Exception:  # a torch that no longer says
        own = None
    same = next((name for name, backend in _BACKENDS.items() if own is not None and backend.value == own), None)
    return {name: way for name, way in _WAYS.items() if name != same}


def _key_of(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> str:
    """What a choice is kept by."""
    return f"{_callables.describe([t for t in (q, k, v, mask) if t is not None])},causal={causal}"


CHOICE = Choice("attention_torch", ways, _key_of)


def choose(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Way:
    """The way of choice for a call."""
    way, settled = CHOICE.choose(q, k, v, mask, causal, scale)
    if settled and mask is None and q.shape[1] == k.shape[1]:
        usual = q.shape[3] ** -0.5
        _warplap.attention_way(q, k, v, causal, scale, way)
        if scale == usual:
            _warplap.attention_way(q, k, v, causal, None, way)
    return way
