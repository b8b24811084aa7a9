"""The operators: what a user calls. Plain torch tensors go straight to the native half; everything else (gradients,
tracing, subclasses, other libraries' arrays, shapes that need folding) takes the general way."""

from __future__ import annotations

from typing import Any, Literal

from . import _activated, _arrays, _borrowed, _gated, _norm, _norm_problem, _rows, _warplap
from ._tiles import Tiles
from ._types import Array

_torch: Any  # the operators over its tensors

try:
    import torch
except ImportError:  # torch is optional: NumPy arrays need none of it
    torch = None  # type: ignore[assignment]
    _PLAIN: frozenset[type] = frozenset()

    def _compiling() -> bool:
        return False

else:
    # The other tracers bring tensors of their own or a mode, which the native half sees.
    from torch.compiler import is_dynamo_compiling as _compiling

    from . import _torch  # type: ignore[no-redef]
    from ._nodes import PLAIN as _PLAIN

    _trained_matmul, _trained_linear = _torch.trained_matmul, _torch.trained_linear
    _trained_attention, _gated_at_once = _torch.trained_attention, _torch.gated_at_once

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]

_matmul_direct = _warplap.matmul_direct
_linear_direct = _warplap.linear_direct
_linear_joined = _warplap.linear_joined
_attention_direct = _warplap.attention_direct
_bsr_direct = _warplap.bsr_direct


_OPTIONAL = ("bias", "mask", "out", "lengths", "block_table", "cu_seqlens_k", "residual", "times")


def _is_torch(**tensors: Any) -> bool:
    """Whether these are torch's; a mixture is an error. What may be left out may be None."""
    given = {n: t for n, t in tensors.items() if not (t is None and n in _OPTIONAL)}
    if torch is None or not any(isinstance(t, torch.Tensor) for t in given.values()):
        return False
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: is a {type(tensor).__name__}, expected tensors of one library")
    return True


def matmul(a: Array, b: Array, *, out: Array | None = None) -> Array:
    """The product of two matrices, by whichever variant is fastest here and proved right.

    ``a`` has shape (..., m, k) or (k,), ``b`` (..., k, n) or (k,), with batches spread as ``torch.matmul`` spreads them;
    float32, float16 or bfloat16 with sums in float32, other types by torch's own product. Both may be transposed or
    padded. torch in, torch out (differentiable); NumPy in, NumPy out; CUDA arrays of other libraries (CuPy, Numba, JAX)
    are borrowed where torch is there. ``out`` of shape (m, n) is written and returned.
    """
    if not _compiling():
        found = _matmul_direct(a, b, out)
        if found is not None:
            return found
        if out is None and type(a) in _PLAIN and type(b) in _PLAIN:
            found = _trained_matmul(a, b)
            return _torch.matmul(a, b, None) if found is None else found
    if _is_torch(a=a, b=b, out=out):
        return _torch.matmul(a, b, out)
    if _borrowed.is_on_cuda(a):
        return _borrowed.call("matmul", {"a": a, "b": b, "out": out})
    return _arrays.matmul(a, b, out)


def linear(
    x: Array,
    w: Array,
    bias: Array | None = None,
    activation: Activation | None = None,
    *,
    residual: Array | None = None,
    times: Array | None = None,
    out: Array | None = None,
) -> Array:
    """``activation(x @ w.T + bias)``: x of shape (..., k), w (n, k), bias (n,); then ``+ residual`` or ``* times``, one
    of them, of shape (..., n).

    ``activation`` is None, "relu", "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid". The product, its bias and, where
    no gradient is wanted, the activation and what is joined are one problem
    (``gemm:...,bias=true,act=gelu,join=add``).
    """
    if residual is not None or times is not None:
        return _joined(x, w, bias, activation, residual, times, out)
    if not _compiling():
        found = _linear_direct(x, w, bias, activation, out)
        if found is not None:
            return found
        if out is None and type(x) in _PLAIN and type(w) in _PLAIN and (bias is None or type(bias) in _PLAIN):
            found = _trained_linear(x, w, bias, activation)
            return _torch.linear(x, w, bias, activation, None) if found is None else found
    if _is_torch(x=x, w=w, bias=bias, out=out):
        return _torch.linear(x, w, bias, activation, out)
    if _borrowed.is_on_cuda(x):
        return _borrowed.call("linear", {"x": x, "w": w, "bias": bias, "out": out}, activation)
    return _arrays.linear(x, w, bias, activation, out)


def _joined(x: Any, w: Any, bias: Any, activation: Any, residual: Any, times: Any, out: Any) -> Any:
    """A linear layer joined with one more tensor."""
    if residual is not None and times is not None:
        raise ValueError("times: is given beside residual, expected one of them")
    if not _compiling():
        found = _linear_joined(x, w, bias, activation, residual, times, out)
        if found is not None:
            return found
    given = {"x": x, "w": w, "bias": bias, "residual": residual, "times": times, "out": out}
    if _is_torch(**given):
        return _torch.joined_linear(x, w, bias, residual, times, activation, out)
    if _borrowed.is_on_cuda(x):
        return _borrowed.call("joined_linear", given, activation)
    return _arrays.linear(x, w, bias, activation, out, residual, times)


def gated_linear(
    x: Array, w_gate: Array, w_up: Array, activation: Activation | None = "silu", *, out: Array | None = None
) -> Array:
    """``activation(x @ w_gate.T) * (x @ w_up.T)``: x of shape (..., k), both weights (n, k). The gated half of a layer
    (SwiGLU with the default).

    ``activation`` is one of those of :func:`linear`. Where no gradient is wanted, it is one
    product that reads x once (``gemm:...,act=silu,pair=true``); the weights stay two tensors, which lie alike.
    """
    if out is None and torch is not None and not _compiling():
        found = _gated_at_once(x, w_gate, w_up, activation)
        if found is not None:
            return found
    given = {"x": x, "w_gate": w_gate, "w_up": w_up, "out": out}
    if _is_torch(**given):
        return _torch.gated_linear(x, w_gate, w_up, activation, out)
    if _borrowed.is_on_cuda(x):
        return _borrowed.call("gated_linear", given, activation)
    return _gated.of_arrays(x, w_gate, w_up, activation, out)


def norm_linear(
    x: Array,
    w: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    activation: Activation | None = None,
    *,
    up: Array | None = None,
    residual: Array | None = None,
    times: Array | None = None,
    eps: float = 1e-6,
) -> Array:
    """``linear(rms_norm(x, weight, eps), w, bias, activation)`` and what follows it, as one product: an RMSNorm and the
    layer behind it. With ``up`` it is ``gated_linear`` of w and up behind the norm.

    x is multiplied as it is, and the rows of the product are divided by x's root mean square, which is found in the
    product or by a small kernel in front, whichever is faster here. The norm's ``weight``, of shape (k,), is folded into
    ``w`` once where both are parameters of torch's: the folded copy is kept as long as ``w`` lives, and made anew when one
    of them was changed in place. Captured CUDA graphs go on with the copy that they saw. Changes that torch does not count
    (``w.data.copy_(…)``) are not seen: :func:`forget_folded` frees all copies. Where a gradient is wanted, and of weights
    that are no parameters, it is a norm and a layer.
    """
    if residual is not None and times is not None:
        raise ValueError("times: is given beside residual, expected one of them")
    if up is not None and not (bias is None and residual is None and times is None):
        raise ValueError("up: is given beside bias, residual or times, expected a pair alone")
    if not 1e-20 <= eps <= 1.0:
        raise ValueError(f"eps: is {eps}, expected a number from 1e-20 to 1")
    all_of_it = {"x": x, "w": w, "weight": weight, "up": up, "bias": bias, "residual": residual, "times": times}
    given = {name: t for name, t in all_of_it.items() if t is not None}
    if _is_torch(**given):
        return _torch.norm_linear(x, w, weight, up, bias, residual, times, activation, eps)
    if _borrowed.is_on_cuda(x):
        return _borrowed.call("norm_linear", all_of_it, activation, eps)
    return _norm_problem.of_arrays(x, w, weight, bias, activation, up, residual, times, eps)


def forget_folded() -> None:
    """Frees the folded weights of :func:`norm_linear`, but for those that captured CUDA graphs have seen."""
    if torch is not None:
        _torch.forget_folded()


def gated(
    a: Array, b: Array, activation: Activation | None = "silu", *, join: Literal["mul", "add"] = "mul",
    out: Array | None = None,
) -> Array:  # fmt: skip
    """``activation(a) * b`` element by element, or ``+ b`` with ``join="add"``: the middle of a gated layer whose
    products are there already.

    Both have one shape; they may be the halves of one tensor, ``gated(*y.chunk(2, -1))``, of which nothing is copied.
    ``activation`` is one of those of :func:`linear`. Arithmetic is in float32 with one rounding at the end.
    Differentiable in both; nothing but a and b is kept for that.
    """
    if out is None and torch is not None and not _compiling():
        found = _torch.activated_at_once(a, b, activation, join)
        if found is not None:
            return found
    given = {"a": a, "b": b, "out": out}
    if _is_torch(**given):
        return _torch.gated(a, b, activation, join, out)
    if _borrowed.is_on_cuda(a):
        return _borrowed.call("gated", given, activation, join)
    return _activated.of_arrays(a, b, activation, join, out)


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
        if not _is_torch(q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k):
            raise NotImplementedError("cu_seqlens_q: is given, expected tensors of torch")
        return _torch.packed_attention(
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
        if not _is_torch(q=q, k=k, v=v, mask=mask, lengths=lengths, block_table=block_table):
            raise NotImplementedError(f"{what}: are given, expected tensors of torch")
        more = {"window": window, "softcap": softcap, "alibi_slopes": alibi_slopes, "align": align}
        more |= {"dropout_p": dropout_p, "seed": seed}
        if uneven:
            if tiles is not None:
                raise NotImplementedError("tiles: are given beside lengths or block_table; leave one of them away")
            more |= {"lengths": lengths, "block_table": block_table}
            return _torch.paged_attention(q, k, v, mask, is_causal, scale, enable_gqa, **more)
        return _torch.bent_attention(q, k, v, mask, is_causal, scale, enable_gqa, **more, tiles=tiles)
    if mask is None and out is None and not _compiling():
        found = None if enable_gqa else _attention_direct(q, k, v, is_causal, scale)
        if found is None and type(q) in _PLAIN and type(k) in _PLAIN and type(v) in _PLAIN:
            found = _trained_attention(q, k, v, is_causal, scale, enable_gqa)
        if found is not None:
            return found
    if _is_torch(q=q, k=k, v=v, mask=mask, out=out):
        return _torch.attention(q, k, v, mask, is_causal, scale, enable_gqa, out)
    if _borrowed.is_on_cuda(q):
        arrays = {"q": q, "k": k, "v": v, "mask": mask, "out": out}
        return _borrowed.call("attention", arrays, is_causal, scale, enable_gqa)
    return _arrays.attention(q, k, v, mask, is_causal, scale, enable_gqa, out)


def bsr_matmul(a: Any, b: Array, *, out: Array | None = None) -> Array:
    """The product of a block-sparse and a dense matrix.

    ``a`` is a torch tensor of layout ``torch.sparse_bsr`` or a SciPy ``bsr_matrix``/``bsr_array`` (NumPy in, NumPy
    out), with blocks of 8 to 128 rows and columns; ``b`` has shape (k, n) or (k,). Both ``b`` and ``out`` may be
    column-major. Differentiable in ``b`` and in ``a``'s values.
    """
    if not _compiling():
        found = _bsr_direct(a, b, out)
        if found is not None:
            return found
    if torch is not None and isinstance(a, torch.Tensor):
        _is_torch(a=a, b=b, out=out)
        return _torch.bsr_matmul(a, b, out)
    return _arrays.bsr_matmul(a, b, out)


def norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    residual: Any = None,
    kind: _norm.Kind = "rms",
    eps: float = 1e-5,
    before: Any = None,
    dropout: float = 0.0,
    seed: Any = None,
    quant: _norm.Quant | None = None,
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
        _is_torch(**{name: t for name, t in (("x", x), ("residual", residual), ("before", before)) if t is not None})
        if quant is not None:
            given = x, residual, weight, bias, kind, float(eps), before, float(dropout), seed
            return _torch.norm_quant(*given, quant)
        return _torch.norm_front(x, residual, weight, bias, kind, float(eps), before, float(dropout), seed)
    if torch is not None and type(x) is torch.Tensor and not _compiling():
        found = _norm.direct(x, weight, bias, residual, kind, eps)
        if found is not None:
            return found
    tensors = {"x": x, "residual": residual, "weight": weight, "bias": bias}
    if _is_torch(**{name: t for name, t in tensors.items() if t is not None or name == "x"}):
        return _torch.norm(x, residual, weight, bias, kind, eps)
    if _borrowed.is_on_cuda(x):
        return _borrowed.call("norm", tensors, kind, eps)
    return _norm.of_arrays(x, residual, weight, bias, kind, eps)


def softmax(x: Any, mask: Any = None, *, scale: float = 1.0) -> Any:
    """``softmax(scale * x + mask)`` over the last dimension.

    ``mask`` spreads over ``x`` as torch spreads it, and is written out only where whole rows cannot share its rows; it
    is of the type of ``x`` and may hold -inf, or (torch) booleans, of which False hides. float32, float16 or bfloat16,
    with arithmetic in float32. torch in, torch out (differentiable in both); NumPy in, NumPy out.
    """
    if _is_torch(x=x, mask=mask):
        return _torch.softmax(x, mask, float(scale))
    if _borrowed.is_on_cuda(x):
        return _borrowed.call("softmax", {"x": x, "mask": mask}, float(scale))
    return _rows.softmax_of_arrays(x, mask, float(scale))


def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: _rows.Reduction = "mean",
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
    if _is_torch(logits=logits, labels=labels):
        return _torch.cross_entropy(logits, labels, *numbers, reduction, inplace)
    return _rows.entropy_of_arrays(logits, labels, *numbers, reduction)


def linear_cross_entropy(
    x: Any,
    w: Any,
    labels: Any,
    bias: Any = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: _rows.Reduction = "mean",
    chunk: int | None = None,
) -> Any:
    """``cross_entropy(linear(x, w, bias), labels, ...)`` without the logits: torch's x of shape (..., k), w (n, k),
    bias (n,), labels (...).

    Rows are taken ``chunk`` at a time, or as many as have 2**27 logits, and only a chunk's logits are in memory. Where
    gradients are wanted they are computed with the loss, chunk by chunk, and sums over chunks are in float32; backward
    multiplies them with the gradient of the loss. With ``reduction="none"`` backward computes logits once more.
    """
    if not _is_torch(x=x, w=w, labels=labels, bias=bias):
        raise TypeError(f"x: is a {type(x).__name__}, expected a torch tensor")
    numbers = int(ignore_index), float(label_smoothing), float(z_loss)
    return _torch.linear_cross_entropy(x, w, labels, bias, *numbers, reduction, chunk)


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
    if torch is not None and not inplace and not _compiling():
        found = _torch.rope_at_once(q, k, cos, sin, positions, interleaved, bias, wide, plain, heads_dim)
        if found is not None:
            return found
    tensors = {"q": q, "cos": cos, "sin": sin, "k": k, "positions": positions, "bias": bias}
    if not _is_torch(**{name: t for name, t in tensors.items() if t is not None}):
        raise TypeError(f"q: is a {type(q).__name__}, expected tensors of torch")
    return _torch.rope(q, k, cos, sin, positions, interleaved, bias, inplace, wide, plain, heads_dim)


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    *,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    out: Any = None,
) -> Any:
    """``(a * scale_a) @ (b * scale_b)`` of torch.float8_e4m3fn, as ``torch._scaled_mm`` computes it.

    ``a`` is [m, k] and ``b`` [k, n]; b is fastest where it is column-major (``w.t()`` of a weight [n, k]). The factors
    are float32: one number each, [m, 1] and [1, n], or [m, k/128] and [k/128, n/128] for blocks. ``out_dtype`` is
    torch.bfloat16 (the default), float16 or float32. Sums are in float32; with ``use_fast_accum`` the narrower sums of
    a GPU's tensor cores may run through all of k. Not differentiable.
    """
    _needs_torch()
    return _torch.scaled_mm(a, b, scale_a, scale_b, out_dtype or torch.bfloat16, use_fast_accum, out)


def int_mm(a: Any, b: Any, *, out: Any = None) -> Any:
    """``a @ b`` of torch.int8 with exact sums in torch.int32, as ``torch._int_mm`` computes it.

    ``a`` is [m, k] and ``b`` [k, n]; b is fastest where it is column-major (``w.t()`` of a weight [n, k]).
    """
    _needs_torch()
    return _torch.int_mm(a, b, out)


def _needs_torch() -> None:
    if torch is None:
        raise NotImplementedError("products of 8-bit tensors are torch's; install torch")
