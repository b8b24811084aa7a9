"""attention over keys that lie in pages, or of which every batch has a number of its own: decoding. No gradients."""

from __future__ import annotations

from typing import Any

from ...operator import autocast
from ...operator.call.fallback import log_fallback
from ...operator.checks import NAMES, dims, floats, ordinary, whole_numbers
from ...operator.declare import Operator
from ...operator.layout import aligned
from ...operator.optional_torch import Tensor, torch
from . import calls, variants
from .dense import as_called, check_variants, spread_mask
from .variants import Facts, as_promised, by_scores, promised, score_fields, scores_inputs

# Queries of all heads that share keys, up to which a GPU has a kernel for these.
_FEW = 128


def _has_kernels(q: Tensor, k: Tensor, v: Tensor, table: Tensor | None) -> bool:
    """Whether kernels are for these: on a GPU the one for decoding."""
    heads, page = (k.shape[1], 16) if table is None else (k.shape[2], k.shape[1])
    wide = max(q.shape[3], v.shape[3])
    fits = ordinary(q, k, v) and wide <= 1024 and (table is None or ordinary(table))
    few = q.shape[2] * (q.shape[1] // max(heads, 1)) <= _FEW and page % 16 == 0
    pieces = q.shape[3] % 8 == 0 and v.shape[3] % 8 == 0 and wide <= 256
    return fits and (not q.is_cuda or (q.dtype != torch.float32 and few and pieces))


def _pages(q: Tensor, k: Tensor, v: Tensor, table: Tensor, facts: Facts) -> str:
    """The problem where k and v are pools."""
    (b, h, sq, d), (pages, page, hkv, _), dv = q.shape, k.shape, v.shape[3]
    sizes = f"attention:b={b},h={h},hkv={hkv},sq={sq},sk={table.shape[1] * page},d={d},dv={dv},dtype={NAMES[q.dtype]}"
    usual = "" if facts.scale == d**-0.5 else f",scale={facts.scale!r}"
    return f"{sizes},causal={str(facts.is_causal).lower()}{usual},layout=bshd,page={page},pages={pages}"


def _run(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, table: Tensor | None,
    lengths: Tensor | None, *args: Any,
) -> Tensor:  # fmt: skip
    facts = Facts(*args)
    if _has_kernels(q, k, v, table):
        added, leans = scores_inputs(mask, slopes)
        try:
            if table is None:
                a, b, c, _ = calls.kernel_inputs(q, k, v, None)
                text = variants.problem(a, b, c, added, leans, facts)
            else:
                # The pools say the order: one query lies the same in both.
                a = aligned(q.transpose(1, 2).contiguous().transpose(1, 2))
                text = _pages(q, k, v, table, facts) + score_fields(added, leans, facts)
                b, c = k.transpose(1, 2), v.transpose(1, 2)
            text += ",lengths=true" if lengths is not None else ""
            out = calls.alone(text)(a, b, c, added, None, None, leans, None, table, lengths)
            return as_promised(out, q, v)
        except (NotImplementedError, ValueError) as why:
            log_fallback("torch", why)
    return as_promised(_by_scores(q, k, v, mask, slopes, table, lengths, facts), q, v)


def _by_scores(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, table: Tensor | None,
    lengths: Tensor | None, facts: Facts,
) -> Tensor:  # fmt: skip
    """By a matrix of scores, from keys that are gathered first."""
    there = None
    if table is not None:
        pages, page = k.shape[:2]
        named = (table >= 0) & (table < pages)
        there = named.repeat_interleave(page, dim=1)
        at = torch.where(named, table, torch.zeros_like(table)).long()
        k, v = (t[at].flatten(1, 2).transpose(1, 2) for t in (k, v))
    sk, has = k.shape[2], None
    if lengths is not None:
        has = lengths.clamp(0, sk)
        own = torch.arange(sk, device=q.device) < has[:, None]
        there = own if there is None else there & own
    if there is not None:
        # What nobody wrote yet may be no number, which a weight of zero does not hide.
        k, v = (t.masked_fill(~there[:, None, :, None], 0.0) for t in (k, v))
    return by_scores(q, k, v, mask, slopes, None, facts, there, has)[0]


PAGED = Operator(
    "attention_paged(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? slopes, Tensor? table, Tensor? lengths,"
    " bool is_causal, float scale, int window, float softcap, bool bottom) -> Tensor",
    _run, lambda q, k, v, *more: promised(q, v),
)  # fmt: skip


def _pools(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> None:
    """Whether k and v are pools for q."""
    for name, t in (("k", k), ("v", v)):
        dims(name, t, 4)
        if not t.is_contiguous():
            result, expected = list(t.stride()), "a pool [pages, page, heads, d] without gaps"
            raise ValueError(f"{name}: has strides {result}, expected {expected}: nobody copies it at every call")
    (_, h, _, d), hkv = q.shape, k.shape[2]
    if k.shape[3] != d:
        raise ValueError(f"k: has shape {list(k.shape)}, expected [pages, page, heads, {d}] as q has heads of {d}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v: has shape {list(v.shape)}, expected the pages, keys and heads of k's {list(k.shape)}")
    if 0 in k.shape or 0 in v.shape:
        raise ValueError(f"k: has shape {list(k.shape)}, expected pools that hold something")
    if h != hkv and not (enable_gqa and h % hkv == 0):
        remedy = f"a divisor of q's {h}" if enable_gqa else f"{h} as q has; or say enable_gqa=True"
        raise ValueError(f"k: has {hkv} heads, expected {remedy}")


def paged(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None, enable_gqa: bool, *,
    lengths: Tensor | None, block_table: Tensor | None, window: int | None, softcap: float | None,
    alibi_slopes: Tensor | None, align: str, dropout_p: float, seed: Any,
) -> Tensor:  # fmt: skip
    """attention with lengths, a table of pages, or both."""
    beside = "block_table" if block_table is not None else "lengths"
    if dropout_p:
        raise NotImplementedError(f"dropout_p: is given beside {beside}, expected 0: nobody trains over it")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, mask, alibi_slopes)):
        raise NotImplementedError(
            f"{beside}: is given for tensors that require a gradient, which it has none of; use no_grad(), or mask="
        )
    check_variants(window, softcap, align)
    dims("q", q, 4)
    q, k, v = autocast.cast(q, k, v)
    if mask is not None and mask.dtype != torch.bool:
        (mask,) = autocast.cast(mask)
    (b, h, sq, d) = q.shape
    table = whole_numbers("block_table", block_table, q, (b, -1), f"[{b}, pages of a batch]: a row for each batch of q")
    lengths = whole_numbers("lengths", lengths, q, (b,), f"[{b}]: one for each batch of q")
    if table is None:
        call = as_called(q, k, v, scale=scale, enable_gqa=enable_gqa)
        q, k, v, factor, sk = *call[:3], call[5], k.shape[2]
    else:
        floats(q=q, k=k, v=v)
        _pools(q, k, v, enable_gqa)
        factor, sk = float(scale) if scale is not None else d**-0.5, table.shape[1] * k.shape[1]
    mask = None if mask is None else spread_mask(mask, q, (b, h, sq, sk))
    if alibi_slopes is not None and tuple(alibi_slopes.shape) != (h,):
        result = list(alibi_slopes.shape)
        raise ValueError(f"alibi_slopes: has shape {result}, expected one number for each of {h} heads")
    slopes = None if alibi_slopes is None else alibi_slopes.to(q.device, torch.float32)
    facts = Facts(bool(is_causal), factor, window or 0, float(softcap or 0.0), align == "bottom_right")
    out: Tensor = PAGED.call(q, k, v, mask, slopes, table, lengths, *facts[:5])
    return out
