"""attention over torch tensors: kernel, shape under tracing, gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ... import _warplap
from ...operator import autocast
from ...operator.call.eager import PLAIN, is_compiling, transform
from ...operator.call.fallback import kernel_or_torch
from ...operator.checks import check_out, floats, has_kernels, ordinary
from ...operator.declare import Operator
from ...operator.layout import aligned, kernel_input
from ...operator.optional_torch import F, Tensor, torch
from .. import dropout as dropping
from . import block_mask, calls, strided, training, variants
from .block_mask import Tiles
from .variants import as_promised, promised

if torch is not None:
    from ...candidates import torch_attention


def _run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    gqa = q.shape[1] != k.shape[1]

    def by_kernel() -> Tensor:
        a, b, c = (aligned(t) for t in (q, k, v)) if q.is_cuda else (q, k, v)
        added = kernel_input(mask)
        out: Any = _warplap.attention_new(a, b, c, added, is_causal, scale)
        # In no order that the choice follows.
        return strided.attend(a, b, c, added, is_causal, scale) if out is None else out

    theirs = lambda: torch_attention.default(q, k, v, mask, causal=is_causal, scale=scale, gqa=gqa)
    if mask is not None and mask.ndim == 4:
        masked = variants.masked(q, k, v, mask, is_causal, scale)
        return as_promised(theirs() if masked is None else masked, q, v)
    return as_promised(kernel_or_torch(by_kernel, theirs, _is_raced(q, k, v)), q, v)


def _is_raced(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return ordinary(q, k, v) and max(q.shape[3], v.shape[3]) <= 1024


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, mask, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask, output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, mask, out = ctx.saved_tensors
    if torch.is_grad_enabled() or (mask is not None and (mask.ndim != 2 or ctx.needs_input_grad[3])):
        return _from_scores(ctx, grad, q, k, v, mask, out)
    return *GRAD.dispatched(grad, q, k, v, mask, out, ctx.is_causal, ctx.scale), None, None, None


def _run_grad(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """For programs that keep nothing but what went in and out: the log-sum-exps come from another forward pass, so that
    memory grows with the length and not with its square."""

    def by_kernel() -> Any:
        own = calls.kernel_inputs(q, k, v, mask)
        problem = _warplap.attention_problem(*own, is_causal, scale)
        lse = calls.forward(problem, *own)[1]
        return calls.backward(problem, grad, *own, out, lse)

    facts = SimpleNamespace(is_causal=is_causal, scale=scale)
    theirs = lambda: _from_scores(facts, grad, q, k, v, mask, out)[:3]
    result: Any = kernel_or_torch(by_kernel, theirs, _is_raced(q, k, v))
    dq, dk, dv = (g if g.stride() == t.stride() else torch.empty_like(t).copy_(g) for g, t in zip(result, (q, k, v)))
    return dq, dk, dv


def _from_scores(
    ctx: Any, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor
) -> tuple[Tensor | None, ...]:
    """The scores are computed once more; sums are in float32."""
    heads, shared = q.shape[1], k.shape[1]
    wide = [t.float() for t in (q, k, v, grad, out)]
    if heads != shared:
        wide[1], wide[2] = (t.repeat_interleave(heads // shared, dim=1) for t in wide[1:3])
    qf, kf, vf, gf, of = wide
    scores = torch.matmul(qf, kf.transpose(-2, -1)) * ctx.scale
    if mask is not None:
        scores = scores + mask.float()
    if ctx.is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top == float("-inf"), torch.zeros_like(top), top))
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, torch.ones_like(total), total)
    inner = torch.matmul(gf, vf.transpose(-2, -1)) - (gf * of).sum(-1, keepdim=True)
    down = weights * inner
    grad_q = torch.matmul(down, kf) * ctx.scale
    grad_k = torch.matmul(down.transpose(-2, -1), qf) * ctx.scale
    grad_v = torch.matmul(weights.transpose(-2, -1), gf)
    if heads != shared:
        grad_k, grad_v = (t.unflatten(1, (shared, heads // shared)).sum(2) for t in (grad_k, grad_v))
    grad_mask = None
    if mask is not None and getattr(ctx, "needs_input_grad", (False,) * 4)[3]:
        grad_mask = down.sum_to_size(mask.shape if mask.ndim == 4 else (1, 1, *mask.shape)).reshape(mask.shape)
        grad_mask = grad_mask.to(mask.dtype)
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype), grad_mask, None, None


_inputs = "Tensor q, Tensor k, Tensor v, Tensor? mask"
ATTENTION = Operator(
    f"attention({_inputs}, bool is_causal, float scale) -> Tensor",
    _run, lambda q, k, v, *more: promised(q, v), save=_save, backward=_backward, autocast=True,
)  # fmt: skip
GRAD = Operator(
    f"attention_grad(Tensor grad, {_inputs}, Tensor out, bool is_causal, float scale) -> (Tensor, Tensor, Tensor)",
    _run_grad, lambda grad, q, k, v, *more: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)),
)  # fmt: skip

_training_of = training.Training(_from_scores)
trained: Any = _training_of.direct


def as_called(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, bool, float]:
    """The arguments of the operator, checked: four dimensions, the mask as what is added, the scale as a number."""
    floats(q=q, k=k, v=v, out=out)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim < 2:
            raise ValueError(f"{name}: has {tensor.ndim} dimensions, expected at least 2")
        if tensor.ndim != q.ndim:
            raise ValueError(f"{name}: has {tensor.ndim} dimensions, expected {q.ndim} like q")
    four = [_four(t) for t in (q, k, v)]
    (b, h, sq, d), (_, hkv, sk, _), dv = four[0].shape, four[1].shape, four[2].shape[3]
    if tuple(four[1].shape) != (b, hkv, sk, d):
        raise ValueError(f"k: has shape {list(k.shape)}, expected the batch and the last size of q's {list(q.shape)}")
    if tuple(four[2].shape) != (b, hkv, sk, dv):
        raise ValueError(
            f"v: has shape {list(v.shape)}, expected the batch, heads and positions of k's {list(k.shape)}"
        )
    if h != hkv and not (enable_gqa and hkv > 0 and h % hkv == 0):
        remedy = f"a divisor of q's {h}" if enable_gqa else f"{h} as q has; or say enable_gqa=True"
        raise ValueError(f"k: has {hkv} heads, expected {remedy}")
    if mask is not None:
        if is_causal:
            raise ValueError("mask: is given with is_causal, expected one of them")
        mask = spread_mask(mask, q, (b, h, sq, sk))
    if d == 0:
        raise ValueError(f"q: has shape {list(q.shape)}, expected a last size above 0")
    return four[0], four[1], four[2], mask, bool(is_causal), float(scale) if scale is not None else d**-0.5


def check_variants(window: int | None, softcap: float | None, align: str) -> None:
    """Whether what torch's own has not is what it may be."""
    if window is not None and window < 1:
        raise ValueError(f"window: is {window}, expected a whole number above 0")
    if softcap is not None and not 0.0 < softcap <= 65536.0:
        raise ValueError(f"softcap: is {softcap}, expected a number above 0 and up to 65536")
    if align not in ("top_left", "bottom_right"):
        raise ValueError(f"align: is {align!r}, expected 'top_left' or 'bottom_right'")


def variant(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    *,
    window: int | None,
    softcap: float | None,
    alibi_slopes: Tensor | None,
    align: str,
    dropout_p: float,
    seed: Any,
    tiles: Tiles | None = None,
) -> Tensor:
    """attention with what torch's own has not."""
    check_variants(window, softcap, align)
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p: is {dropout_p}, expected a number from 0 to below 1")
    q, k, v = autocast.cast(q, k, v)
    if mask is not None and mask.dtype != torch.bool:
        (mask,) = autocast.cast(mask)
    shape, causal = (*q.shape[:-1], v.shape[-1]), is_causal and mask is not None
    call = as_called(q, k, v, mask=mask, is_causal=is_causal and not causal, scale=scale, enable_gqa=enable_gqa)
    if alibi_slopes is not None and tuple(alibi_slopes.shape) != (call[0].shape[1],):
        result = list(alibi_slopes.shape)
        raise ValueError(f"alibi_slopes: has shape {result}, expected one number for each of {call[0].shape[1]} heads")
    slopes = None if alibi_slopes is None else alibi_slopes.to(q.device, torch.float32)
    facts = variants.Facts(bool(is_causal), call[5], window or 0, float(softcap or 0.0), align == "bottom_right")
    seen = call[3]
    if tiles is not None:
        seen = block_mask.checked(tiles, mask, call[0], call[1])
        facts = facts._replace(tile=tiles.side, live=tiles.live)
    words = None
    if dropout_p:
        facts, words = facts._replace(dropout=float(dropout_p)), dropping.drawn(seed, q.device)
    return variants.attend(*call[:3], seen, slopes, facts, words).reshape(shape)


def of_tensors(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    out: Tensor | None,
) -> Tensor:
    if not has_kernels(q, k, v):
        plain = F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
        return plain if out is None else out.copy_(plain)
    q, k, v = autocast.cast(q, k, v)
    if mask is not None and mask.dtype != torch.bool:
        (mask,) = autocast.cast(mask)
    floats(q=q, k=k, v=v, out=out)
    q, k, v = _spread(q, k, v, enable_gqa)
    call = as_called(q, k, v, mask=mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa, out=out)
    shape = (*q.shape[:-1], v.shape[-1])
    if out is not None:
        check_out(out, shape, q=q, k=k, v=v, mask=call[3])
    o = None
    if out is None and _learns(*call[:4]):
        o = variants.attend(*call[:4], None, variants.Facts(*call[4:], 0, 0.0, False))
    elif out is None and training.wanted(*call[:4]):
        o = _with_gradients(*call)
    if o is None:
        o = ATTENTION.dispatched(*call)
    o = o if o.shape == shape else o.reshape(shape)
    return o if out is None else out.copy_(o)


def _learns(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether a mask's gradient is wanted that a kernel computes."""
    if mask is None or not mask.requires_grad or not torch.is_grad_enabled() or not variants.has_kernels(q, k, v):
        return False
    return is_compiling() or (transform() is None and all(type(t) in PLAIN for t in (q, k, v)))


def _with_gradients(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor | None:
    if mask is not None and mask.ndim == 4:
        return variants.attend(q, k, v, mask, None, variants.Facts(is_causal, scale, 0, 0.0, False))
    if mask is not None:
        return _training_of.masked(q, k, v, mask, is_causal, scale)
    gqa = q.shape[1] != k.shape[1]
    result = trained(q, k, v, is_causal, scale, gqa)
    return _training_of.attend(q, k, v, is_causal, scale, gqa) if result is None else result


def _spread(q: Tensor, k: Tensor, v: Tensor, gqa: bool) -> tuple[Tensor, ...]:
    """Batches and heads as torch's own spreads them: a tensor without a dimension, or with one of size 1, has it for
    all. What does not spread is for others to refuse."""
    lead = {t.shape[:-2] for t in (q, k, v)}
    if len(lead) == 1 or gqa or min(q.ndim, k.ndim, v.ndim) < 2:
        return q, k, v
    try:
        common = torch.broadcast_shapes(*lead)
    except RuntimeError:
        return q, k, v
    return tuple(t.expand(*common, *t.shape[-2:]) for t in (q, k, v))


def _four(t: Tensor) -> Tensor:
    if t.ndim == 4:
        return t
    return t[(None,) * (4 - t.ndim)] if t.ndim < 4 else t.flatten(0, t.ndim - 4)


def spread_mask(mask: Tensor, q: Tensor, scores: tuple[int, ...]) -> Tensor:
    """The mask as what is added to the scores, of two dimensions where it is the same for all heads and of four
    else."""
    if mask.device != q.device:
        raise ValueError(f"mask: is on {mask.device}, expected {q.device} like q")
    if mask.ndim < 2 or mask.ndim > max(q.ndim, 4):
        raise ValueError(f"mask: has {mask.ndim} dimensions, expected 2 to {max(q.ndim, 2)}")
    if mask.ndim > 4:
        mask = mask.expand(*q.shape[:-2], *mask.shape[-2:]).flatten(0, mask.ndim - 4)
    if any(m not in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1])):
        raise ValueError(f"mask: has shape {list(mask.shape)}, expected one that spreads to {list(scores)}")
    if mask.dtype == torch.bool:  # the copy engine brings elements, and kernels read them in pairs: that pays
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    elif mask.dtype != q.dtype:
        raise TypeError(f"mask: holds {mask.dtype}, expected bool or {q.dtype} like q")
    while mask.ndim > 2 and mask.shape[0] == 1:
        mask = mask[0]
    if mask.ndim == 2:
        return mask.expand(scores[2], scores[3])
    return (mask if mask.ndim == 4 else mask[None]).expand(-1, -1, scores[2], scores[3])
