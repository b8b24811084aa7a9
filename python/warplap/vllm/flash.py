"""vLLM's FlashAttention backend with steps that only decode by ``warplap.attention``, where a race was won. Loads
vLLM's; see ``attention`` for how its cache is read."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable

import torch
import vllm  # type: ignore[import-not-found]
from torch import Tensor
from vllm.v1.attention.backend import AttentionType  # type: ignore[import-not-found]
from vllm.v1.attention.backends.flash_attn import (  # type: ignore[import-not-found]
    FlashAttentionBackend,
    FlashAttentionImpl,
    FlashAttentionMetadata,
)

from .. import _warplap
from ..callables import race
from ..tuner import modes as tuner_modes
from . import attention, modes

_log = logging.getLogger("warplap")
# Bytes that the cache of a race may have; larger ones are left to FlashAttention.
_MOST = 2 << 30
# Queries of one request in a step that only decodes: more than one where tokens are guessed ahead.
_GUESSED = 8


class Backend(FlashAttentionBackend):  # type: ignore[misc]
    """FlashAttention in all but who answers steps that only decode. It keeps its name, which vLLM asks for."""

    @staticmethod
    def get_impl_cls() -> type:
        return Impl

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return False  # the choice is by the number of requests


class Impl(FlashAttentionImpl):  # type: ignore[misc]
    """One layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        modes.begin()
        plain = self.attn_type == AttentionType.DECODER and self.alibi_slopes is None and self.sinks is None
        self._plain = plain and self.kv_cache_dtype in ("auto", "float16", "bfloat16")
        self._plain = self._plain and getattr(self, "dcp_world_size", 1) in (-1, 1)

    def forward(
        self, layer: Any, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: Any,
        output: Tensor, output_scale: Tensor | None = None, output_block_scale: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        scaled = output_scale is not None or output_block_scale is not None
        if self._plain and not scaled and attn_metadata is not None and self._decodes(attn_metadata):
            pool, queries = attention.pool_of(kv_cache), attn_metadata.max_query_len
            if pool is not None and wins(self, layer, query, pool, attn_metadata):
                tokens = attn_metadata.num_actual_tokens
                self._decode(query[:tokens], pool, attn_metadata, output[:tokens], queries)
                return output
        result: Tensor = super().forward(
            layer, query, key, value, kv_cache, attn_metadata, output, output_scale, output_block_scale
        )
        return result

    def _window(self, about: Any) -> tuple[int, int]:
        return tuple(about.sliding_window or self.sliding_window or (-1, -1))  # type: ignore[return-value]

    def _decodes(self, about: Any) -> bool:
        """Whether every request has the same few tokens, the last ones it has, and nothing out of the ordinary."""
        before, after = self._window(about)
        queries = about.max_query_len
        return (
            about.causal is True
            and not about.use_cascade
            and about.mm_prefix_range_tensor is None
            and about.rswa_prefix_lens is None
            and queries <= _GUESSED
            and queries * about.seq_lens.shape[0] == about.num_actual_tokens
            and ((before, after) == (-1, -1) or (before > 0 and after == 0))
        )

    def _decode(self, query: Tensor, pool: Tensor, about: Any, out: Tensor, queries: int) -> Tensor:
        before = self._window(about)[0]
        table: Tensor = about.block_table
        pages = -(-_keys(about) // pool.shape[1])
        table = table if pages >= table.shape[1] else table[:, :pages].contiguous()
        return attention.decode(
            query, pool, table, about.seq_lens, out, queries=queries, scale=self.scale,
            window=before if before > 0 else None, softcap=self.logits_soft_cap or None,
        )  # fmt: skip


def _keys(about: Any) -> int:
    """The longest request's keys, rounded up: sizes that share an answer."""
    keys: int = 1 << max(int(about.max_seq_len) - 1, 127).bit_length()
    return keys


_won: dict[Any, bool] = {}


def forget() -> None:
    """Forgets every decision: what is known has changed."""
    _won.clear()


def wins(impl: Impl, layer: Any, query: Tensor, pool: Tensor, about: Any) -> bool:
    """Whether a record says that ours is faster than FlashAttention in steps like this; raced first where that is let
    happen."""
    requests = 1 << max(about.seq_lens.shape[0] - 1, 0).bit_length()
    queries, page, keys = about.max_query_len, pool.shape[1], _keys(about)
    window = impl._window(about)[0]
    sizes = (requests, queries, impl.num_heads, impl.num_kv_heads, impl.head_size, page, keys, window)
    asked = (*sizes, impl.logits_soft_cap, query.dtype, query.device)
    known = _won.get(asked)
    if known is not None:
        return known
    won, final = False, modes.wanted() != "tune"
    names = ("requests", "queries", "h", "hkv", "d", "page", "keys", "window", "softcap", "dtype")
    try:
        if attention.fits(impl.num_heads, impl.num_kv_heads, impl.head_size, queries, page):
            text = ",".join(f"{n}={v}" for n, v in zip(names, asked))
            step = functools.cache(lambda: _step(pool, query, requests, queries, keys, impl._window(about)))
            size = requests * keys * pool[0, 0].numel() * pool.element_size()
            won, result = _race(text, impl, layer, query, step, size <= _MOST)
            final = final or result
        else:
            final = True
    except Exception as error:  # whatever it is, there is FlashAttention
        _log.warning("attention: left to FlashAttention: %s: %s", type(error).__name__, error)
        final = True
    if final:
        _won[asked] = won
    return won


def _race(
    text: str, impl: Impl, layer: Any, query: Tensor, step: Callable[[], tuple[Any, ...]], small: bool
) -> tuple[bool, bool]:
    """Whether ours has won, and whether that is known."""
    mode = "off" if _warplap.mode() == "off" else "tune" if small and modes.may_race() else "replay"

    def theirs(_: Tensor) -> Tensor:
        drawn, laid_out, about, out = step()
        keys = laid_out.transpose(1, 2)
        result: Tensor = FlashAttentionImpl.forward(impl, layer, drawn, None, None, keys, about, out)
        return result

    def ours(_: Tensor) -> Tensor:
        drawn, laid_out, about, _out = step()
        return impl._decode(drawn, laid_out, about, torch.empty_like(drawn), about.max_query_len)

    if mode == "tune":
        with tuner_modes.set_mode("tune"):  # our best against theirs: the kernel's own race comes first
            ours(query)
    runs: list[Callable[..., Any]] = [theirs, ours]
    sources = {"flash_attn": f"vllm {vllm.__version__}", "warplap": f"warplap {_warplap.__version__}"}
    made: list[tuple[str, dict[str, Any], str]] = [(name, {}, source) for name, source in sources.items()]
    winner, result = race.compete("vllm_decode", text, made, runs, theirs, (query[:1],), {}, mode=mode)
    return result is not None and winner == 1, result is not None


def _step(
    pool: Tensor, query: Tensor, requests: int, queries: int, keys: int, window: tuple[int, int]
) -> tuple[Tensor, Tensor, Any, Tensor]:
    """A step like those to come, with a cache of its own: queries, cache, what vLLM says about it, and room for the
    answer. Requests are of all lengths from half of the longest."""
    page, device = pool.shape[1], query.device
    each = -(-keys // page)
    laid_out = torch.randn((requests * each, *pool.shape[1:]), device=device, dtype=pool.dtype)
    table = torch.randperm(requests * each, device=device).view(requests, each).int()
    lengths = torch.linspace(max(keys // 2, queries), keys, requests, device=device).int()
    tokens = requests * queries
    drawn = torch.randn((tokens, *query.shape[1:]), device=device, dtype=query.dtype)
    about = FlashAttentionMetadata(
        num_actual_tokens=tokens, max_query_len=queries, max_seq_len=keys, seq_lens=lengths, block_table=table,
        query_start_loc=torch.arange(0, tokens + 1, queries, device=device, dtype=torch.int32),
        slot_mapping=torch.empty(0, device=device, dtype=torch.int64), use_cascade=False, common_prefix_len=0,
        cu_prefix_query_lens=None, prefix_kv_lens=None, suffix_kv_lens=None, sliding_window=window,
    )  # fmt: skip
    return drawn, laid_out, about, torch.empty_like(drawn)
