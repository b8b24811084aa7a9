"""An attention backend for vLLM's CPU platform, for tests: steps that only decode by what
``warplap.vllm.attention`` does on a GPU, everything else by torch.

vLLM's own CPU kernels keep keys packed for their instructions, which nobody else can read. So the cache is written here
in the order that FlashAttention's has on a GPU, [pages, page, kv heads, 2 d], into the memory vLLM gives for it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl

from warplap.vllm import attention, modes

calls = {"decode": 0, "torch": 0}


class Backend(CPUAttentionBackend):
    @staticmethod
    def get_impl_cls():
        return Impl


def pool_of(kv_cache):
    pages, heads, page, wide = kv_cache.shape
    return kv_cache.view(pages, page, heads, wide)


class Impl(CPUAttentionBackendImpl):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        modes.begin()

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        lines, there = pool_of(kv_cache).flatten(0, 1), slot_mapping >= 0
        tokens = slot_mapping.shape[0]
        both = torch.cat([key[:tokens], value[:tokens]], dim=-1)
        lines[slot_mapping[there]] = both[there]

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, **scales):
        about = attn_metadata
        if about is None:
            return output
        pool, table, lengths = pool_of(kv_cache), about.block_table, about.seq_lens
        tokens, requests = about.num_actual_tokens, lengths.shape[0]
        if tokens == requests * about.max_query_len and about.max_query_len <= 4:
            calls["decode"] += 1
            said = dict(queries=about.max_query_len, scale=self.scale)
            attention.decode(query[:tokens], pool, table, lengths, output[:tokens], **said)
            return output
        calls["torch"] += 1
        starts = about.query_start_loc.tolist()
        for i, (a, b) in enumerate(zip(starts, starts[1:])):
            length, d = int(lengths[i]), self.head_size
            lines = pool[table[i].long()].flatten(0, 1)[:length].transpose(0, 1)
            q = query[a:b].transpose(0, 1)
            seen = torch.ones(b - a, length, dtype=torch.bool).tril(length - (b - a))
            k, v = lines[..., :d], lines[..., d:]
            result = F.scaled_dot_product_attention(
                q[None], k[None], v[None], attn_mask=seen, scale=self.scale, enable_gqa=True
            )
            output[a:b] = result[0].transpose(0, 1)
        return output
