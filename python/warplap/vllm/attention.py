"""``--attention-backend CUSTOM`` (``WARPLAP`` is the same one): vLLM's FlashAttention, and ``warplap.attention`` for
steps that only decode, where a race between the two was won.

vLLM keeps keys and values of a head side by side, ``[pages, page, kv heads, 2 d]``. Both are read where they lie: the
query is made twice as wide with zeros, so that its product with a whole line is that with the key alone, and of the
answer the half that comes from values is kept. That is exact as long as values are finite numbers; no page is copied.
Prompts, mixed batches, and whatever else FlashAttention has (sinks, cascades, quantised caches) are left to it.

:class:`Backend` and its implementation are made in ``flash``, which loads vLLM's.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ..ops import functions

_log = logging.getLogger("warplap")
NAME, PATH = "WARPLAP", "warplap.vllm.flash.Backend"
# Queries of all heads that share keys, up to which a GPU has a kernel, and the widest line it takes.
_FEW, _WIDE = 128, 256


def pool_of(kv_cache: Tensor) -> Tensor | None:
    """A layer's cache [pages, kv heads, page, 2 d] as [pages, page, kv heads, 2 d], where it lies so without gaps."""
    pool = kv_cache.transpose(1, 2)
    return pool if pool.ndim == 4 and pool.is_contiguous() else None


def fits(heads: int, kv_heads: int, head_size: int, queries: int, page: int) -> bool:
    """Whether there is a kernel for steps like these on a GPU."""
    few = queries * (heads // kv_heads) <= _FEW
    return few and head_size % 8 == 0 and 2 * head_size <= _WIDE and page % 16 == 0


def decode(
    query: Tensor, pool: Tensor, table: Tensor, lengths: Tensor, out: Tensor, *,
    queries: int = 1, scale: float, window: int | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Writes the answer of so many queries for each request, the last ones it has, into ``out`` [tokens, heads, d]."""
    (_, heads, d), requests = query.shape, table.shape[0]
    wide = F.pad(query, (0, d)).view(requests, queries, heads, 2 * d).transpose(1, 2)
    result = functions.attention(
        wide, pool, pool, is_causal=queries > 1, scale=scale, enable_gqa=True, lengths=lengths, block_table=table,
        window=window, softcap=softcap, align="bottom_right",
    )  # fmt: skip
    out.view(requests, queries, heads, d).copy_(result.transpose(1, 2)[..., d:])
    return out


def offer() -> None:
    """Tells vLLM of the backend. Nobody gets it who does not name it."""
    try:
        from vllm.v1.attention.backends import registry  # type: ignore[import-not-found]
    except ImportError:  # a version that keeps it elsewhere
        return
    custom: Any = registry.AttentionBackendEnum.CUSTOM
    if custom.is_overridden() and custom.get_path() != PATH:
        _log.info("attention: CUSTOM is %s: the backend %s is left out", custom.get_path(), NAME)
        return
    registry.register_backend(custom, PATH)
    # One more name for the same one; where an enumeration does not take it, CUSTOM is there.
    with contextlib.suppress(AttributeError, TypeError):
        registry.AttentionBackendEnum._member_map_.setdefault(NAME, custom)
