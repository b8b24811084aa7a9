"""The operators but for products: what a user calls. Plain torch tensors go straight to the native half; everything
else (gradients, tracing, subclasses, other libraries' arrays, shapes that need folding) takes the general way."""

from __future__ import annotations

from typing import Any, Literal

from .. import _warplap
from ..arrays import dlpack, numpy as arrays_numpy
from . import row_problems
from .norm import problem as norm_problem
from ..operator.tensor_kind import PLAIN, compiling, is_torch, torch, torch_ops
from .attention.block_mask import Tiles
from ..arrays.types import Array

_attention_direct = _warplap.attention_direct
_bsr_direct = _warplap.bsr_direct
if torch is not None:
    _trained_attention = torch_ops.trained_attention
    _gapped_attention = torch_ops.gapped_attention


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

    Shapes (..., heads, queries, d); ``attn_mask`` (or ``mask``, which is the same) is bool (True takes part) or added to
    the scores, and spreads over heads and batches. ``enable_gqa`` lets several heads of q share one of k and v. With
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

    Sequences of unequal lengths, over torch's tensors, with gradients: with ``cu_seqlens_q`` (int32, one more than there
    are sequences: 0, where the second begins, … where the last ends) q is (rows of all sequences, heads, d) without
    padding, and k and v likewise by ``cu_seqlens_k`` (left out: the same). Each sequence is attended to alone.
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
        if not is_torch(q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k):
            raise NotImplementedError("cu_seqlens_q: is given, expected tensors of torch")
        return torch_ops.packed_attention(
            q, k, v, (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k), is_causal, scale, enable_gqa,
            window=window, softcap=softcap, alibi_slopes=alibi_slopes, align=align, dropout_p=dropout_p, seed=seed,
        )  # fmt: skip
    if cu_seqlens_k is not None or max_seqlen_q is not None or max_seqlen_k is not None:
        raise ValueError("cu_seqlens_k, max_seqlen_q or max_seqlen_k: is given, expected cu_seqlens_q beside it")
    bends = window is not None or softcap is not None or alibi_slopes is not None or align != "top_left"
    bends = bends or tiles is not None
    uneven = lengths is not None or block_table is not None
    if bends or uneven or dropout_p != 0.0:
        what = "window, softcap, alibi_slopes, align, dropout_p, tiles, lengths, block_table"
        if out is not None:
            raise NotImplementedError(f"out: is given beside one of {what}; leave it away")
        if not is_torch(q=q, k=k, v=v, mask=mask, lengths=lengths, block_table=block_table):
            raise NotImplementedError(f"{what}: are given, expected tensors of torch")
        more = {"window": window, "softcap": softcap, "alibi_slopes": alibi_slopes, "align": align}
        more |= {"dropout_p": dropout_p, "seed": seed}
        if uneven:
            if tiles is not None:
                raise NotImplementedError("tiles: are given beside lengths or block_table; leave one of them away")
            more |= {"lengths": lengths, "block_table": block_table}
            return torch_ops.paged_attention(q, k, v, mask, is_causal, scale, enable_gqa, **more)
        return torch_ops.bent_attention(q, k, v, mask, is_causal, scale, enable_gqa, **more, tiles=tiles)
    if mask is None and out is None and not compiling():
        found = None if enable_gqa else _attention_direct(q, k, v, is_causal, scale)
        if found is None and type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN:
            found = _trained_attention(q, k, v, is_causal, scale, enable_gqa)
            if found is None:
                found = _gapped_attention(q, k, v, is_causal, scale, enable_gqa)
        if found is not None:
            return found
    if is_torch(q=q, k=k, v=v, mask=mask, out=out):
        return torch_ops.attention(q, k, v, mask, is_causal, scale, enable_gqa, out)
    if dlpack.is_on_cuda(q):
        arrays = {"q": q, "k": k, "v": v, "mask": mask, "out": out}
        return dlpack.call("attention", arrays, is_causal, scale, enable_gqa)
    return arrays_numpy.attention(q, k, v, mask, is_causal, scale, enable_gqa, out)


def bsr_matmul(a: Any, b: Array, *, out: Array | None = None) -> Array:
    """The product of a block-sparse and a dense matrix.

    ``a`` is a torch tensor of layout ``torch.sparse_bsr`` or a SciPy ``bsr_matrix``/``bsr_array`` (NumPy in, NumPy
    out), with blocks of 8 to 128 rows and columns; ``b`` has shape (k, n) or (k,). Both ``b`` and ``out`` may be
    column-major. Differentiable in ``b`` and in ``a``'s values.
    """
    if not compiling():
        found = _bsr_direct(a, b, out)
        if found is not None:
            return found
    if torch is not None and isinstance(a, torch.Tensor):
        is_torch(a=a, b=b, out=out)
        return torch_ops.bsr_matmul(a, b, out)
    return arrays_numpy.bsr_matmul(a, b, out)


def norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    residual: Any = None,
    kind: norm_problem.Kind = "rms",
    eps: float = 1e-5,
    before: Any = None,
    dropout: float = 0.0,
    seed: Any = None,
    quant: norm_problem.Quant | None = None,
) -> Any:
    """``norm(x + residual) * weight + bias`` over the last dimension: RMSNorm (``kind="rms"``) or LayerNorm
    (``kind="layer"``), as ``torch.nn.functional.rms_norm`` and ``layer_norm`` compute them.

    ``residual`` has the shape of ``x``, ``weight`` and ``bias`` have that of its last dimension. With a residual the
    sum comes beside the norm: ``y, total = norm(x, w, residual=r)``. float32, float16 or bfloat16, with arithmetic in
    float32. torch in, torch out (differentiable in all of them); NumPy in, NumPy out.

    torch only: ``before`` is added to every row of ``x`` first, then a share ``dropout`` of its elements is dropped and
    the others grow, then the residual is added; the sum comes beside the norm then too. Which elements are dropped
    follows from their places and ``seed``: a number, a pair of numbers (seed and stream), two int64 beside ``x``, or
    None to have torch draw one. The same seed drops the same elements in every kernel and on every device.

    With ``quant="fp8"`` (float8_e4m3fn) or ``"int8"`` the norm is written as 8-bit numbers with one float32 factor a
    row, its largest magnitude over 448 or 127: ``codes, scale = norm(x, w, quant="fp8")``, and the sum behind them where
    there is one. ``codes * scale`` is the norm; ``scale`` has a last dimension of 1, as ``scaled_mm`` takes it. torch
    only, without gradients.
    """
    if before is not None or dropout or quant is not None:
        if torch is None or not isinstance(x, torch.Tensor):
            what = "before, dropout or quant"
            raise TypeError(f"x: is a {type(x).__name__}, expected a torch tensor where {what} is given")
        is_torch(**{name: t for name, t in (("x", x), ("residual", residual), ("before", before)) if t is not None})
        if quant is not None:
            given = x, residual, weight, bias, kind, float(eps), before, float(dropout), seed
            return torch_ops.norm_quant(*given, quant)
        return torch_ops.norm_front(x, residual, weight, bias, kind, float(eps), before, float(dropout), seed)
    if torch is not None and type(x) is torch.Tensor and not compiling():
        found = norm_problem.direct(x, weight, bias, residual, kind, eps)
        if found is not None:
            return found
    tensors = {"x": x, "residual": residual, "weight": weight, "bias": bias}
    if is_torch(**{name: t for name, t in tensors.items() if t is not None or name == "x"}):
        return torch_ops.norm(x, residual, weight, bias, kind, eps)
    if dlpack.is_on_cuda(x):
        return dlpack.call("norm", tensors, kind, eps)
    return norm_problem.of_arrays(x, residual, weight, bias, kind, eps)


def softmax(x: Any, mask: Any = None, *, scale: float = 1.0) -> Any:
    """``softmax(scale * x + mask)`` over the last dimension.

    ``mask`` spreads over ``x`` as torch spreads it, and is written out only where whole rows cannot share its rows; it
    is of the type of ``x`` and may hold -inf, or (torch) booleans, of which False hides. float32, float16 or bfloat16,
    with arithmetic in float32. torch in, torch out (differentiable in both); NumPy in, NumPy out.
    """
    if mask is None and torch is not None and type(x) is torch.Tensor and not compiling():
        found = row_problems.softmax_direct(x, None, float(scale))
        if found is not None:
            return found
    if is_torch(x=x, mask=mask):
        return torch_ops.softmax(x, mask, float(scale))
    if dlpack.is_on_cuda(x):
        return dlpack.call("softmax", {"x": x, "mask": mask}, float(scale))
    return row_problems.softmax_of_arrays(x, mask, float(scale))


def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: row_problems.Reduction = "mean",
    inplace: bool = False,
) -> Any:
    """Cross entropy of rows of logits along the last dimension, as ``torch.nn.functional.cross_entropy`` computes it of
    float32, plus ``z_loss`` times the squared log-sum-exp of each row.

    ``labels`` (int64 or int32) has the shape of ``logits`` but for the last dimension. Rows whose label is
    ``ignore_index`` do not count; a label that is no column makes the loss NaN. The loss is float32: the mean of the
    rows that count, their sum, or with ``reduction="none"`` one for each row. Where logits require a gradient it is
    computed along with the loss; with ``inplace`` in the memory of the logits, which nobody may read after that.
    """
    numbers = int(ignore_index), float(label_smoothing), float(z_loss)
    if torch is not None and type(logits) is torch.Tensor and reduction in row_problems.REDUCTIONS and not compiling():
        found = row_problems.entropy_direct(logits, labels, reduction == "mean", *numbers)
        if found is not None:
            return found[0] if reduction == "none" else found[2].view(())
    if is_torch(logits=logits, labels=labels):
        return torch_ops.cross_entropy(logits, labels, *numbers, reduction, inplace)
    return row_problems.entropy_of_arrays(logits, labels, *numbers, reduction)


def linear_cross_entropy(
    x: Any,
    w: Any,
    labels: Any,
    bias: Any = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: row_problems.Reduction = "mean",
    chunk: int | None = None,
) -> Any:
    """``cross_entropy(linear(x, w, bias), labels, ...)`` without the logits: torch's x of shape (..., k), w (n, k),
    bias (n,), labels (...).

    Rows are taken ``chunk`` at a time, or as many as have 2**27 logits, and only a chunk's logits are in memory. Where
    gradients are wanted they are computed with the loss, chunk by chunk, and sums over chunks are in float32; backward
    multiplies them with the gradient of the loss. With ``reduction="none"`` backward computes logits once more.
    """
    if not is_torch(x=x, w=w, labels=labels, bias=bias):
        raise TypeError(f"x: is a {type(x).__name__}, expected a torch tensor")
    numbers = int(ignore_index), float(label_smoothing), float(z_loss)
    return torch_ops.linear_cross_entropy(x, w, labels, bias, *numbers, reduction, chunk)


def rope(
    q: Any,
    k: Any,
    cos: Any,
    sin: Any,
    *,
    positions: Any = None,
    interleaved: bool = False,
    bias: Any = None,
    inplace: bool = False,
    wide: bool = False,
    plain: int = 0,
    heads_dim: int = -2,
) -> Any:
    """Rotary position embedding of q and k in one launch: ``a * cos - b * sin`` and ``b * cos + a * sin`` for the two
    elements of each pair, which are one of the first and one of the second half of a head, or with ``interleaved``
    neighbours. Over torch's tensors, differentiable in q, k and the bias.

    q is (tokens…, heads, d) and k likewise with heads of its own, or None; ``heads_dim=1`` says that heads lie before
    the tokens, (batches, heads, tokens, d). ``cos`` and ``sin`` have a row for each position and a column for each
    pair, float32 or of the type of q; fewer columns than d/2 turn the first elements of a head, and leave the others.
    With ``wide`` they have a column for each element, as models of Hugging Face have them. ``positions`` (int64 or
    int32) says which row turns a token; without them rows are those of the tokens, or of the last dimension of them.
    A position that the table does not have makes NaN.

    A ``bias`` of all heads, q's and then k's, is added first. A fused projection is q alone, (tokens…, heads of q, k
    and v, d), with ``plain`` as many heads at the end as are only biased: those of v. With ``inplace`` q and k may be
    written over: use what is returned. Where a gradient is wanted, and under torch.compile, it is new memory.
    """
    if torch is not None and not inplace and not compiling():
        found = torch_ops.rope_at_once(q, k, cos, sin, positions, interleaved, bias, wide, plain, heads_dim)
        if found is not None:
            return found
    tensors = {"q": q, "cos": cos, "sin": sin, "k": k, "positions": positions, "bias": bias}
    if not is_torch(**{name: t for name, t in tensors.items() if t is not None}):
        raise TypeError(f"q: is a {type(q).__name__}, expected tensors of torch")
    return torch_ops.rope(q, k, cos, sin, positions, interleaved, bias, inplace, wide, plain, heads_dim)
