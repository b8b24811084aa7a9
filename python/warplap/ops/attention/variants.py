"""attention with more than torch's own has: windows, soft caps, distances (ALiBi), the diagonal in the last corner,
weights dropped by place and seed, and masks of heads and batches that nobody writes out for the others."""

from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor

from ... import _warplap
from ...operator import cuda
from .. import dropout as ops_dropout
from . import block_mask, training
from ...operator.compile import fake
from ...operator.library import lib, op, ordinary
from ...operator.eager import operator

_FACTS = "bool is_causal, float scale, int window, float softcap, bool bottom, float dropout, int tile, int live"
for _schema in (
    f"attention_bent(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? slopes, Tensor? seed, {_FACTS}) ->"
    " (Tensor, Tensor)",
    "attention_bent_grad(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? slopes, Tensor? seed, Tensor out,"
    f" Tensor lse, {_FACTS}) -> (Tensor, Tensor, Tensor)",
    "attention_mask_grad(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor mask, Tensor? slopes, Tensor? seed, Tensor out,"
    f" Tensor lse, {_FACTS}) -> Tensor",
):
    lib.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


class Facts(NamedTuple):
    """What a call says beside its tensors. A window, cap or share of 0 is none; with a tile the mask is a map of squares."""

    is_causal: bool
    scale: float
    window: int
    softcap: float
    bottom: bool
    dropout: float = 0.0
    tile: int = 0
    live: int = 0


def problem(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, facts: Facts) -> str:
    """The problem of the forward pass, without its log-sum-exps."""
    return _warplap.attention_problem(q, k, v, None, facts.is_causal, facts.scale) + bends(mask, slopes, facts)


def bends(mask: Tensor | None, slopes: Tensor | None, facts: Facts) -> str:
    """What a problem says of its scores beside sizes, causality and scale."""
    text = ""
    if mask is not None:
        over = {(False, False): "all", (False, True): "heads", (True, False): "batches", (True, True): "each"}
        own = (False, False) if mask.ndim == 2 else (mask.shape[0] > 1, mask.shape[1] > 1)
        kind = f"tiles,tile={facts.tile},live={facts.live}" if facts.tile else "add"
        text += f",mask={kind}" + ("" if mask.ndim == 2 else f",over={over[own]}")
    text += f",window={facts.window}" if facts.window else ""
    text += f",softcap={facts.softcap!r}" if facts.softcap else ""
    text += f",dropout={facts.dropout!r}" if facts.dropout else ""
    return text + (",corner=bottom" if facts.bottom else "") + (",alibi=true" if slopes is not None else "")


def by_scores(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, seed: Tensor | None, facts: Facts,
    there: Tensor | None = None, has: Tensor | None = None, first: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """By a matrix of scores, with sums in float32 at the least: for types and devices that no kernel has. ``there``
    says which keys a batch has, and ``has`` how many it counts: the last corner is at the last of these. ``first`` is
    the number of the first head, which what is dropped goes by."""
    wide = torch.promote_types(q.dtype, torch.float32)
    heads, (sq, sk) = q.shape[1], (q.shape[2], k.shape[2])
    kw, vw = (t.to(wide).repeat_interleave(heads // t.shape[1], dim=1) for t in (k, v))
    scores = torch.matmul(q.to(wide), kw.transpose(-2, -1)) * facts.scale
    if facts.softcap:
        scores = facts.softcap * torch.tanh(scores / facts.softcap)
    last = sk if has is None else has[:, None, None]
    own = torch.arange(sq, device=q.device) + (last - sq if facts.bottom else 0)
    away = torch.arange(sk, device=q.device) - own[..., None]
    if slopes is not None:
        scores = scores - slopes.to(wide)[:, None, None] * away.abs()
    hidden = torch.zeros_like(away, dtype=torch.bool)
    if mask is not None:
        if facts.tile:  # what hides must not be added: rows that see nothing would have gradients that are no numbers
            hidden = hidden | ~block_mask.spread(mask, facts.tile, (sq, sk))
        else:
            scores = scores + mask.to(wide)
    if facts.is_causal:
        hidden = hidden | (away > 0)
    if facts.window:
        hidden = hidden | (away.abs() > facts.window)
    if there is not None:
        hidden = hidden | ~there[:, None, None]
    scores = scores.masked_fill(hidden, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    known = torch.where(lse == float("-inf"), torch.zeros_like(lse), lse)
    weights = torch.exp(scores - known[..., None])
    if seed is not None:
        b, h, sq, sk = weights.shape
        weights = weights * ops_dropout.of_weights(b, h, sq, sk, seed, facts.dropout, first).to(wide)
    return torch.matmul(weights, vw).to(q.dtype), lse.detach().float()


def lent(mask: Tensor | None, slopes: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Mask and slopes as a problem has them: without gaps, where kernels may fetch from them."""
    if mask is not None and mask.ndim == 4 and mask.shape[:2] == (1, 1):
        mask = mask[0, 0]
    slopes = None if slopes is None else slopes.contiguous()
    if mask is not None:
        mask = mask.contiguous()
        mask = cuda.aligned(mask) if mask.is_cuda else mask
    return mask, slopes


def can(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether kernels are for these: on a GPU those of tensor cores, which have half types."""
    fits = ordinary(q, k, v) and max(q.shape[3], v.shape[3]) <= 1024
    return fits and not (q.is_cuda and (q.dtype == torch.float32 or max(q.shape[3], v.shape[3]) > 256))


def _run(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, seed: Tensor | None, *given: Any
) -> tuple[Tensor, Tensor]:
    facts = Facts(*given)
    if can(q, k, v):
        (a, b, c, _), (added, leans) = training.lent(q, k, v, None), lent(mask, slopes)
        try:
            text = problem(a, b, c, added, leans, facts)
            out, lse = training.prepared(text)[0](a, b, c, added, None, None, leans, seed)
            return as_promised(out, q, v), lse.contiguous()
        except NotImplementedError as why:
            cuda.tell("torch", why)
    out, lse = by_scores(q, k, v, mask, slopes, seed, facts)
    return as_promised(out, q, v), lse


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, is_causal: bool, scale: float) -> Tensor | None:
    """With a mask for each head or batch and nothing else that torch has not, so that torch's own race too; None where
    no problem says it."""
    if not ordinary(q, k, v) or max(q.shape[3], v.shape[3]) > 1024:
        return None
    (a, b, c, _), (added, _) = training.lent(q, k, v, None), lent(mask, None)
    try:
        found: Tensor = training.alone(problem(a, b, c, added, None, Facts(is_causal, scale, 0, 0.0, False)))(a, b, c, added)
        return found
    except (NotImplementedError, ValueError) as why:
        cuda.tell("torch", why)
        return None


def promised(q: Tensor, v: Tensor, device: Any = None) -> Tensor:
    """An output as a traced program is promised it."""
    if q.shape[3] == v.shape[3]:
        return torch.empty_like(q, device=device)
    return q.new_empty((*q.shape[:3], v.shape[3]), device=device)


def as_promised(o: Tensor, q: Tensor, v: Tensor) -> Tensor:
    """The answer in the order that a traced program was promised."""
    lies = all(n == 1 or x == y for n, x, y in zip(o.shape, o.stride(), promised(q, v, "meta").stride()))
    return o if lies else promised(q, v).copy_(o)


def _run_grad(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, seed: Tensor | None,
    out: Tensor, lse: Tensor, *given: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    facts = Facts(*given)
    found: tuple[Tensor, ...] | None = None
    if can(q, k, v):
        (a, b, c, _), (added, leans) = training.lent(q, k, v, None), lent(mask, slopes)
        try:
            text = problem(a, b, c, added, leans, facts)
            like = training.like_output(a, c)
            o, g = training.laid(like, out), training.laid(like, grad)
            found = training.prepared(text)[1](a, b, c, added, o, lse, g, None, None, None, leans, seed)
        except NotImplementedError as why:
            cuda.tell("torch", why)
    if found is None:
        found = _by_autograd(grad, q, k, v, mask, slopes, seed, facts, False)
    dq, dk, dv = (g if g.stride() == t.stride() else torch.empty_like(t).copy_(g) for g, t in zip(found, (q, k, v)))
    return dq, dk, dv


def _run_mask_grad(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, slopes: Tensor | None, seed: Tensor | None,
    out: Tensor, lse: Tensor, *given: Any,
) -> Tensor:  # fmt: skip
    """The gradient of what was added, which takes no more memory than that."""
    facts = Facts(*given)
    if can(q, k, v):
        (a, b, c, _), (added, leans) = training.lent(q, k, v, None), lent(mask, slopes)
        try:
            like = training.like_output(a, c)
            o, g = training.laid(like, out), training.laid(like, grad)
            call = _of_mask(problem(a, b, c, added, leans, facts))
            found: Tensor = call(a, b, c, added, o, lse, g, None, leans, seed)
            return found.reshape(mask.shape)
        except NotImplementedError as why:
            cuda.tell("torch", why)
    last: Tensor = _by_autograd(grad, q, k, v, mask, slopes, seed, facts, False, True)[3]
    return last.contiguous()


@functools.lru_cache(maxsize=4096)
def _of_mask(forward: str) -> _warplap.Prepared:
    """The call of a mask's gradient, by the problem of the forward pass."""
    return _warplap.Prepared(f"attention_mask_grad:{forward.partition(':')[2]}")


def _by_autograd(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, seed: Tensor | None,
    facts: Facts, again: bool, of_mask: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Of q, k and v, and of the mask where it is asked for."""
    given = (q, k, v) if mask is None or not of_mask else (q, k, v, mask)

    def forward(a: Tensor, b: Tensor, c: Tensor, added: Tensor | None = mask) -> Tensor:
        return by_scores(a, b, c, added, slopes, seed, facts)[0]

    return by_autograd(grad, given, forward, again)


def by_autograd(
    grad: Tensor, given: tuple[Tensor, ...], forward: Callable[..., Tensor], again: bool
) -> tuple[Tensor, ...]:
    """Gradients of what was given, by torch's own of a forward pass; with ``again`` they have gradients too."""
    with torch.enable_grad():
        leaves = [t if again and t.requires_grad else t.detach().requires_grad_() for t in given]
        return torch.autograd.grad(forward(*leaves), leaves, grad, create_graph=again)


for _device in ("CPU", "CUDA"):
    lib.impl("attention_bent", _run, _device)
    lib.impl("attention_bent_grad", _run_grad, _device)
    lib.impl("attention_mask_grad", _run_mask_grad, _device)


@fake("attention_bent")
def _fake(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    return promised(q, v), q.new_empty(q.shape[:3], dtype=torch.float32)


@fake("attention_bent_grad")
def _grad_fake(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


@fake("attention_mask_grad")
def _mask_grad_fake(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *more: Any) -> Tensor:
    return mask.new_empty(mask.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, slopes, seed, *ctx.given = inputs
    ctx.save_for_backward(q, k, v, mask, slopes, seed, *output)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, of_sums: Tensor | None = None) -> tuple[Tensor | None, ...]:
    q, k, v, mask, slopes, seed, out, lse = ctx.saved_tensors
    needs, of_mask = ctx.needs_input_grad, None
    found: tuple[Tensor | None, ...] = (None, None, None)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        found = _by_autograd(grad, q, k, v, mask, slopes, seed, Facts(*ctx.given), True, needs[3])
        of_mask = found[3] if needs[3] else None
    else:
        given = (grad, q, k, v, mask, slopes, seed, out, lse, *ctx.given)
        found = op.attention_bent_grad(*given) if any(needs[:3]) else found
        of_mask = op.attention_mask_grad(*given) if needs[3] else None
    three = (g if need else None for g, need in zip(found, needs[:3]))
    return *three, of_mask, *(None,) * 10


_call = operator("attention_bent", _run, _save, _backward).call


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, facts: Facts, seed: Tensor | None = None
) -> Tensor:
    """Over tensors of four dimensions that belong together."""
    if slopes is not None and slopes.requires_grad and torch.is_grad_enabled():
        return by_scores(q, k, v, mask, slopes, seed, facts)[0]
    out: Tensor = _call(q, k, v, mask, slopes, seed, *facts)[0]
    return out
