"""``warplap.attention``: what users call, and the problem that a call is."""

from __future__ import annotations

from typing import Any, Literal

from ... import _warplap
from ...arrays import numpy as arrays
from ...arrays.types import Array
from ...operator.call.eager import PLAIN
from ...operator.public import Public, compiling, is_tensor, is_torch
from . import block_mask, calls, dense, paged, strided, variants, varlen
from .block_mask import Tiles

_direct, _trained, _strided = _warplap.attention_direct, dense.trained, strided.direct

_VARIANTS = "window, softcap, alibi_slopes, align, dropout_p, tiles, lengths, block_table"


# Over arrays.


def _of_arrays(
    q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float | None, enable_gqa: bool, out: Any
) -> Any:
    np = arrays.numpy()
    q, k, v = (arrays.array(t, name) for t, name in ((q, "q"), (k, "k"), (v, "v")))
    for name, a in (("q", q), ("k", k), ("v", v)):
        if a.ndim not in (3, 4):
            raise ValueError(f"{name}: has {a.ndim} dimensions, expected 3 (heads, positions, d) or 4")
    four = [a[None] if a.ndim == 3 else a for a in (q, k, v)]
    if four[0].shape[1] != four[1].shape[1] and not enable_gqa:
        heads = four[0].shape[1]
        raise ValueError(f"k: has {four[1].shape[1]} heads, expected {heads} as q has; or say enable_gqa=True")
    if mask is not None:
        if is_causal:
            raise ValueError("mask: is given with is_causal, expected one of them")
        mask = arrays.array(mask, "mask")
        if mask.dtype == np.bool_:
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        mask = np.ascontiguousarray(np.broadcast_to(mask, (q.shape[-2], k.shape[-2])), dtype=q.dtype)
    target = arrays.into(out, (*q.shape[:-1], v.shape[-1]), q)
    whole = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
    four = [np.ascontiguousarray(a) for a in four]
    q4, k4, v4 = four
    _warplap.attention_into(q4, k4, v4, mask, is_causal, scale, whole[None] if whole.ndim == 3 else whole)
    if whole is not target:
        target[...] = whole
    return target


# The problem.


def _problem(
    q: Any, k: Any, v: Any, attn_mask: Any = None, mask: Any = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, dropout_p: float = 0.0, out: Any = None, tiles: Any = None, **more: Any,
) -> str:  # fmt: skip
    mask = attn_mask if mask is None else mask
    if more:  # windows, lengths, pages, packed sequences: the call itself says what it would solve
        usual = {"scale": scale, "enable_gqa": enable_gqa, "dropout_p": dropout_p, "out": out, "tiles": tiles}
        asked = calls.problem_of(lambda: attention(q, k, v, mask, is_causal=is_causal, **usual, **more))
        if asked is None:
            raise NotImplementedError(f"attention: no problem says {', '.join(more)} of these tensors; torch's answers")
        return asked
    q, k, v = (t[(None,) * (4 - t.ndim)] if t.ndim <= 4 else t.flatten(0, t.ndim - 4) for t in (q, k, v))
    if is_tensor(q) and (mask is not None or dropout_p or tiles is not None):
        if mask is not None:
            is_torch(q=q, mask=mask)
            mask = dense.spread_mask(mask, q, (q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
        factor = q.shape[3] ** -0.5 if scale is None else float(scale)
        facts = variants.Facts(is_causal, factor, 0, 0.0, False, float(dropout_p))
        if tiles is not None:
            mask, facts = block_mask.checked(tiles, mask, q, k), facts._replace(tile=tiles.side, live=tiles.live)
        return variants.problem(q, k, v, mask, None, facts)
    return _warplap.attention_problem(q, k, v, mask, is_causal, scale)


# By who the call is for.


def _of_variants(tensors: dict[str, Any], dropout_p: float, tiles: Any, **facts: Any) -> Any:
    """With something that torch's own has not; the tensors' own forms are torch's."""
    if tensors.pop("out") is not None:
        raise NotImplementedError(f"out: is given beside one of {_VARIANTS}; leave it away")
    lengths, table = tensors.pop("lengths"), tensors.pop("block_table")
    if not is_torch(("mask", "alibi_slopes", "lengths", "block_table"), **tensors, lengths=lengths, block_table=table):
        raise NotImplementedError(f"{_VARIANTS}: are given, expected tensors of torch")
    if lengths is None and table is None:
        return dense.variant(**tensors, **facts, dropout_p=dropout_p, tiles=tiles)
    if tiles is not None:
        raise NotImplementedError("tiles: are given beside lengths or block_table; leave one of them away")
    return paged.paged(**tensors, **facts, dropout_p=dropout_p, lengths=lengths, block_table=table)


_public = Public(torch=dense.of_tensors, arrays=_of_arrays, problem=_problem, optional=("mask", "out"))


@_public
def attention(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    *,
    mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dropout_p: float = 0.0,
    out: Array | None = None,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Array | None = None,
    align: Literal["top_left", "bottom_right"] = "top_left",
    seed: Any = None,
    lengths: Array | None = None,
    block_table: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    tiles: Tiles | None = None,
) -> Array:
    """``softmax(scale * q @ k.T + mask) @ v`` head by head: the arguments mean what
    ``torch.nn.functional.scaled_dot_product_attention``'s mean.

    Shapes (..., heads, queries, d); ``attn_mask`` (or ``mask``, which is the same) is bool (True takes part) or added
    to the scores, and spreads over heads and batches. ``enable_gqa`` lets several heads of q share one of k and v. With
    ``dropout_p`` weights are dropped by their places and ``seed`` (a number, a pair, or two int64 in a tensor; drawn by
    torch where it is not given): the same ones on every device and in every kernel.

    Beyond torch's own, over torch's tensors: a query sees keys at most ``window`` places from its own (before it, where
    ``is_causal``); scores become ``softcap * tanh(score / softcap)``; ``alibi_slopes``, one a head, times the distance
    of a key are taken from them. With ``align="bottom_right"`` the last query's own place is the last key's, as in
    decoding, and not the first one's the first's. A query that sees nothing gets zeros.

    ``tiles`` (``warplap.tiles(map)``) says which squares of queries and keys are looked at: kernels on a GPU leave out
    the others.

    For decoding, over torch's tensors without gradients: ``lengths`` (int32, one a batch) says how many of the keys
    each batch has; with ``align="bottom_right"`` the last query's own place is the last of those. With ``block_table``
    (int32, (batches, pages of a batch)) k and v are pools of pages, (pages, page, heads, d), and a row names the pages
    that hold a batch's keys one after another; a number that names no page (-1) hides its keys. q is (batches, heads,
    queries, d).

    Sequences of unequal lengths, over torch's tensors, with gradients: with ``cu_seqlens_q`` (int32, one more than
    there are sequences: 0, where the second begins, … where the last ends) q is (rows of all sequences, heads, d)
    without padding, and k and v likewise by ``cu_seqlens_k`` (left out: the same). Each sequence is attended to alone.
    ``max_seqlen_q`` and ``max_seqlen_k`` are the longest lengths, or more; where they are left out offsets are looked
    at, which waits for a GPU. Rows that no sequence has hold anything afterwards.
    """
    if attn_mask is not None:
        if mask is not None:
            raise ValueError("mask: is given beside attn_mask, expected one of them")
        mask = attn_mask
    if cu_seqlens_q is not None:
        beside = (out, lengths, block_table, mask, tiles)
        if any(one is not None for one in beside):
            what = "out, mask, tiles, lengths or block_table"
            raise NotImplementedError(f"cu_seqlens_q: is given beside {what}; leave those away")
        if not is_torch(("cu_seqlens_k",), q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k):
            raise NotImplementedError("cu_seqlens_q: is given, expected tensors of torch")
        packed: Any = varlen.packed
        return packed(  # type: ignore[no-any-return]
            q, k, v, (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k), is_causal, scale, enable_gqa,
            window=window, softcap=softcap, alibi_slopes=alibi_slopes, align=align, dropout_p=dropout_p, seed=seed,
        )  # fmt: skip
    if cu_seqlens_k is not None or max_seqlen_q is not None or max_seqlen_k is not None:
        raise ValueError("cu_seqlens_k, max_seqlen_q or max_seqlen_k: is given, expected cu_seqlens_q beside it")
    varied = window is not None or softcap is not None or alibi_slopes is not None or align != "top_left"
    varied = varied or tiles is not None or lengths is not None or block_table is not None or dropout_p != 0.0
    if varied:
        tensors = {"q": q, "k": k, "v": v, "mask": mask, "alibi_slopes": alibi_slopes, "lengths": lengths}
        return _of_variants(
            {**tensors, "block_table": block_table, "out": out}, is_causal=is_causal, scale=scale,
            enable_gqa=enable_gqa, window=window, softcap=softcap, align=align, dropout_p=dropout_p, seed=seed, tiles=tiles,
        )  # fmt: skip
    if mask is None and out is None and not compiling():
        result = None if enable_gqa else _direct(q, k, v, is_causal, scale)
        if result is None and type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN:
            result = _trained(q, k, v, is_causal, scale, enable_gqa)
            if result is None:
                result = _strided(q, k, v, is_causal, scale, enable_gqa)
        if result is not None:
            return result
    tensors = {"q": q, "k": k, "v": v, "mask": mask, "out": out}
    return _public.of(tensors, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
