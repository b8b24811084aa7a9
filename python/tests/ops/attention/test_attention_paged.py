"""attention over keys in pages and over batches that have unequal numbers of keys."""

from __future__ import annotations

import pytest
import torch
from conftest import near

import warplap


def by_hand(
    q, k, v, *, lengths=None, block_table=None, mask=None, is_causal=False, window=None, softcap=None,
    alibi_slopes=None, align="top_left",
):  # fmt: skip
    """In double precision, key by key as the table and the lengths say."""
    rows = []
    for b in range(q.shape[0]):
        if block_table is None:
            keys, values = k[b].double(), v[b].double()
            there = torch.ones(keys.shape[1], dtype=torch.bool)
        else:
            pages, page = k.shape[:2]
            named = [int(n) if 0 <= int(n) < pages else None for n in block_table[b]]
            nothing = lambda t: torch.zeros(t.shape[1:], dtype=torch.double, device=t.device)
            keys, values = (
                torch.cat([nothing(t) if n is None else t[n].double() for n in named]).transpose(0, 1) for t in (k, v)
            )
            there = torch.tensor([n is not None for n in named for _ in range(page)])
        has = keys.shape[1] if lengths is None else min(max(int(lengths[b]), 0), keys.shape[1])
        there = there.to(q.device) & (torch.arange(keys.shape[1], device=q.device) < has)
        keys, values = (t.repeat_interleave(q.shape[1] // t.shape[0], 0) for t in (keys, values))
        scores = q[b].double() @ keys.mT * q.shape[-1] ** -0.5
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        own = torch.arange(q.shape[2], device=q.device) + (has - q.shape[2] if align == "bottom_right" else 0)
        away = torch.arange(keys.shape[1], device=q.device) - own[:, None]
        if alibi_slopes is not None:
            scores = scores - alibi_slopes.double()[:, None, None] * away.abs()
        if mask is not None:
            scores = scores.masked_fill(~mask[b], float("-inf"))
        hidden = ((away > 0) & is_causal) | ~there
        if window is not None:
            hidden = hidden | (away.abs() > window)
        rows.append(torch.softmax(scores.masked_fill(hidden, float("-inf")), -1).nan_to_num() @ values)
    return torch.stack(rows)


def pools(pages, page, heads, d, dtype, device):
    """Pages, of which the last was never written."""
    k, v = (torch.randn(pages, page, heads, d, device=device).to(dtype) for _ in range(2))
    k[-1], v[-1] = float("nan"), float("nan")
    return k, v


def table(b, entries, pages, device):
    """Pages in any order, none twice and not the last; one that is none."""
    page_table = torch.randperm(pages - 1)[: b * entries].reshape(b, entries).to(device, torch.int32)
    page_table[-1, 0] = -1
    return page_table


CASES = {
    "one token": dict(),
    "last corner": dict(is_causal=True, align="bottom_right"),
    "window": dict(window=9, is_causal=True, align="bottom_right"),
    "bent": dict(softcap=2.0, alibi_slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625]), align="bottom_right"),
    "first corner": dict(is_causal=True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sq", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_keys_are_found_by_the_table(device, case, sq, dtype, with_lengths):
    facts = {n: t.to(device) if isinstance(t, torch.Tensor) else t for n, t in CASES[case].items()}
    q = torch.randn(3, 4, sq, 8, device=device).to(dtype)
    k, v = pools(20, 16, 2, 8, dtype, device)
    facts["block_table"] = table(3, 4, 20, device)
    if with_lengths:
        facts["lengths"] = torch.tensor([0, 37, 64], dtype=torch.int32, device=device)
    out = warplap.attention(q, k, v, enable_gqa=True, **facts)
    assert out.dtype == dtype and out.shape == q.shape and near(out, by_hand(q, k, v, **facts))
    if (device, dtype) != ("cuda", torch.float32):  # which has no kernel there
        kept = " ".join(str(line) for line in warplap.store.ls())
        assert "page=16" in kept and ("lengths=true" in kept) == with_lengths


@pytest.mark.parametrize("sq", [1, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_batches_have_the_keys_they_say(device, sq, dtype):
    q, k, v = (torch.randn(4, h, s, 16, device=device).to(dtype) for h, s in ((4, sq), (2, 50), (2, 50)))
    lengths = torch.tensor([50, 0, 1, 23], dtype=torch.int32, device=device)
    # What is behind a batch's keys was never written.
    for b, has in enumerate(lengths.tolist()):
        k[b, :, has:], v[b, :, has:] = float("nan"), float("nan")
    seen = torch.rand(4, 1, sq, 50, device=device) > 0.2
    for facts in ({}, {"is_causal": True, "align": "bottom_right"}, {"mask": seen}):
        out = warplap.attention(q, k, v, enable_gqa=True, lengths=lengths, **facts)
        with_zeros = k.nan_to_num(), v.nan_to_num()
        near(out, by_hand(q, *with_zeros, lengths=lengths, **facts))
        assert not out[1].any()


def test_numbers_that_name_nothing_harm_nobody(device):
    for dtype in (torch.float32, torch.bfloat16):
        q = torch.randn(3, 4, 1, 8, device=device).to(dtype)
        k, v = pools(5, 16, 4, 8, dtype, device)
        wild = torch.tensor([[0, 5, -7, 2**31 - 1], [-(2**31), 1, 2, 10**6], [3, 3, 3, 0]], dtype=torch.int32)
        wild, lengths = wild.to(device), torch.tensor([2**31 - 1, -5, 65], dtype=torch.int32, device=device)
        near(warplap.attention(q, k, v, block_table=wild), by_hand(q, k, v, block_table=wild))
        both = dict(block_table=wild, lengths=lengths)
        near(warplap.attention(q, k, v, **both), by_hand(q, k, v, **both))


@pytest.mark.parametrize("page,width,sq", [(5, 8, 1), (16, 7, 2), (16, 8, 70)])
def test_what_has_no_kernel_on_a_gpu_is_still_right(device, page, width, sq):
    q = torch.randn(2, 4, sq, width, device=device).bfloat16()
    k, v = pools(14, page, 2, width, torch.bfloat16, device)
    facts = dict(block_table=table(2, 5, 14, device), is_causal=True, align="bottom_right")
    near(warplap.attention(q, k, v, enable_gqa=True, **facts), by_hand(q, k, v, **facts))
    wide = [t.double() for t in (q, k, v)]
    with pytest.raises(TypeError, match="q: holds torch.float64"):
        warplap.attention(*wide, enable_gqa=True, **facts)


def test_a_larger_pool_is_the_same_problem_to_the_store(device):
    q, rows = torch.randn(2, 4, 1, 8, device=device).half(), table(2, 3, 9, device)
    for pages in (9, 400):
        k, v = pools(pages, 16, 4, 8, torch.float16, device)
        near(warplap.attention(q, k, v, block_table=rows), by_hand(q, k, v, block_table=rows))
    kept = [str(line) for line in warplap.store.ls() if "page=16" in str(line)]
    assert len(kept) == 1 and "pages=400" not in kept[0]


def test_a_traced_program_takes_them_too(device):
    q, (k, v) = torch.randn(2, 4, 1, 8, device=device), pools(9, 16, 2, 8, torch.float32, device)
    rows, lengths = table(2, 3, 9, device), torch.tensor([20, 48], dtype=torch.int32, device=device)
    call = lambda q: warplap.attention(q * 2, k, v, enable_gqa=True, block_table=rows, lengths=lengths) + 1
    near(torch.compile(call, backend="aot_eager", fullgraph=True)(q), call(q))


def test_errors_name_the_argument_and_the_remedy():
    q, (k, v) = torch.randn(2, 4, 1, 8), pools(9, 16, 4, 8, torch.float32, "cpu")
    rows, lengths = table(2, 3, 9, "cpu"), torch.tensor([20, 48], dtype=torch.int32)
    call = lambda q=q, k=k, v=v, **facts: warplap.attention(q, k, v, **{"block_table": rows, **facts})
    halved = dict(k=k[:, :, :2].contiguous(), v=v[:, :, :2].contiguous())
    wanted = q.clone().requires_grad_()
    for error, words, facts in [
        (TypeError, r"block_table: holds torch.int64, expected .*block_table.int\(\)", dict(block_table=rows.long())),
        (TypeError, r"lengths: holds torch.int64", dict(lengths=lengths.long())),
        (ValueError, r"block_table: has shape \[1, 3\]", dict(block_table=rows[:1])),
        (ValueError, r"lengths: has shape \[2, 1\], expected \[2\]", dict(lengths=lengths[:, None])),
        (ValueError, r"k: has strides .* without gaps", dict(k=k.transpose(1, 2))),
        (ValueError, r"k: has 2 heads, expected 4 as q has; or say enable_gqa=True", halved),
        (ValueError, r"v: has shape", dict(v=v[:5])),
        (ValueError, r"k: has shape .*, expected \[pages, page, heads, 8\]", dict(k=k[..., :4].contiguous())),
        (ValueError, r"q: has 3 dimensions", dict(q=q[0])),
        (NotImplementedError, r"dropout_p: is given beside block_table", dict(dropout_p=0.1)),
        (NotImplementedError, r"block_table: is given for tensors that require a gradient", dict(q=wanted)),
        (NotImplementedError, r"out: is given beside", dict(out=torch.empty_like(q))),
        (ValueError, r"align: is 'middle'", dict(align="middle")),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            call(**facts)
