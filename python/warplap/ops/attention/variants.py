"""attention with more than torch's own has: windows, soft caps, distances (ALiBi), the diagonal in the last corner,
weights dropped by place and seed, and masks of heads and batches that nobody writes out for the others."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ... import _warplap
from ...operator.call.fallback import kernel_or_torch, log_fallback
from ...operator.checks import ordinary
from ...operator.declare import Operator
from ...operator.layout import kernel_input
from ...operator.optional_torch import Tensor, torch
from .. import dropout as dropping
from . import block_mask, calls


class Facts(NamedTuple):
    """What a call says beside its tensors. A window, cap or share of 0 is none; with a tile the mask is a map of
    squares."""

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
    return _warplap.attention_problem(q, k, v, None, facts.is_causal, facts.scale) + score_fields(mask, slopes, facts)


def score_fields(mask: Tensor | None, slopes: Tensor | None, facts: Facts) -> str:
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
        weights = weights * dropping.of_weights(b, h, sq, sk, seed, facts.dropout, first).to(wide)
    return torch.matmul(weights, vw).to(q.dtype), lse.detach().float()


def scores_inputs(mask: Tensor | None, slopes: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Mask and slopes as a problem has them: without gaps, where kernels may fetch from them."""
    if mask is not None and mask.ndim == 4 and mask.shape[:2] == (1, 1):
        mask = mask[0, 0]
    return kernel_input(mask), None if slopes is None else slopes.contiguous()


def has_kernels(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether kernels are for these: on a GPU those of tensor cores, which have half types."""
    fits = ordinary(q, k, v) and max(q.shape[3], v.shape[3]) <= 1024
    return fits and not (q.is_cuda and (q.dtype == torch.float32 or max(q.shape[3], v.shape[3]) > 256))


def _run(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, seed: Tensor | None, *args: Any
) -> tuple[Tensor, Tensor]:
    facts = Facts(*args)

    def by_kernel() -> tuple[Tensor, Tensor]:
        (a, b, c, _), (added, leans) = calls.kernel_inputs(q, k, v, None), scores_inputs(mask, slopes)
        ready = calls.prepared(problem(a, b, c, added, leans, facts))[0]
        out, lse = ready(a, b, c, added, None, None, leans, seed)
        return out, lse.contiguous()

    theirs = lambda: by_scores(q, k, v, mask, slopes, seed, facts)
    out, lse = kernel_or_torch(by_kernel, theirs, has_kernels(q, k, v))
    return as_promised(out, q, v), lse


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, is_causal: bool, scale: float) -> Tensor | None:
    """With a mask for each head or batch and nothing else that torch has not, so that torch's own race too; None where
    no problem says it."""
    if not ordinary(q, k, v) or max(q.shape[3], v.shape[3]) > 1024:
        return None
    (a, b, c, _), (added, _) = calls.kernel_inputs(q, k, v, None), scores_inputs(mask, None)
    try:
        ready = calls.alone(problem(a, b, c, added, None, Facts(is_causal, scale, 0, 0.0, False)))
        return ready(a, b, c, added)  # type: ignore[no-any-return]
    except (NotImplementedError, ValueError) as why:
        log_fallback("torch", why)
        return None


def promised(q: Tensor, v: Tensor, device: Any = None) -> Tensor:
    """An output as a traced program is promised it."""
    if q.shape[3] == v.shape[3]:
        return torch.empty_like(q, device=device)
    return q.new_empty((*q.shape[:3], v.shape[3]), device=device)


def as_promised(o: Tensor, q: Tensor, v: Tensor) -> Tensor:
    """The answer in the order that a traced program was promised."""
    is_so = all(n == 1 or x == y for n, x, y in zip(o.shape, o.stride(), promised(q, v, "meta").stride()))
    return o if is_so else promised(q, v).copy_(o)


def _run_grad(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, seed: Tensor | None,
    out: Tensor, lse: Tensor, *args: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    facts = Facts(*args)

    def by_kernel() -> tuple[Tensor, ...]:
        (a, b, c, _), (added, leans) = calls.kernel_inputs(q, k, v, None), scores_inputs(mask, slopes)
        ready, like = calls.prepared(problem(a, b, c, added, leans, facts))[1], calls.like_output(a, c)
        o, g = calls.laid_like(like, out), calls.laid_like(like, grad)
        return ready(a, b, c, added, o, lse, g, None, None, None, leans, seed)  # type: ignore[no-any-return]

    theirs = lambda: _by_autograd(grad, q, k, v, mask, slopes, seed, facts, False)
    result = kernel_or_torch(by_kernel, theirs, has_kernels(q, k, v))
    dq, dk, dv = (g if g.stride() == t.stride() else torch.empty_like(t).copy_(g) for g, t in zip(result, (q, k, v)))
    return dq, dk, dv


def _run_mask_grad(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, slopes: Tensor | None, seed: Tensor | None,
    out: Tensor, lse: Tensor, *args: Any,
) -> Tensor:  # fmt: skip
    """The gradient of what was added, which takes no more memory than that."""
    facts = Facts(*args)

    def by_kernel() -> Tensor:
        (a, b, c, _), (added, leans) = calls.kernel_inputs(q, k, v, None), scores_inputs(mask, slopes)
        ready, like = calls.of_mask(problem(a, b, c, added, leans, facts)), calls.like_output(a, c)
        o, g = calls.laid_like(like, out), calls.laid_like(like, grad)
        return ready(a, b, c, added, o, lse, g, None, leans, seed).reshape(mask.shape)  # type: ignore[no-any-return]

    theirs = lambda: _by_autograd(grad, q, k, v, mask, slopes, seed, facts, False, True)[3].contiguous()
    return kernel_or_torch(by_kernel, theirs, has_kernels(q, k, v))


def _by_autograd(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, seed: Tensor | None,
    facts: Facts, again: bool, of_mask: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Of q, k and v, and of the mask where it is asked for."""
    arguments = (q, k, v) if mask is None or not of_mask else (q, k, v, mask)

    def forward(a: Tensor, b: Tensor, c: Tensor, added: Tensor | None = mask) -> Tensor:
        return by_scores(a, b, c, added, slopes, seed, facts)[0]

    return by_autograd(grad, arguments, forward, again)


def by_autograd(
    grad: Tensor, arguments: tuple[Tensor, ...], forward: Callable[..., Tensor], again: bool
) -> tuple[Tensor, ...]:
    """Gradients of what was given, by torch's own of a forward pass; with ``again`` they have gradients too."""
    with torch.enable_grad():
        leaves = [t if again and t.requires_grad else t.detach().requires_grad_() for t in arguments]
        return torch.autograd.grad(forward(*leaves), leaves, grad, create_graph=again)


def _shapes(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    return promised(q, v), q.new_empty(q.shape[:3], dtype=torch.float32)


def _grad_shapes(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _mask_shape(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *more: Any) -> Tensor:
    return mask.new_empty(mask.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, slopes, seed, *ctx.facts = inputs
    ctx.save_for_backward(q, k, v, mask, slopes, seed, *output)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, of_sums: Tensor | None = None) -> tuple[Tensor | None, ...]:
    q, k, v, mask, slopes, seed, out, lse = ctx.saved_tensors
    needs, of_mask = ctx.needs_input_grad, None
    result: tuple[Tensor | None, ...] = (None, None, None)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        result = _by_autograd(grad, q, k, v, mask, slopes, seed, Facts(*ctx.facts), True, needs[3])
        of_mask = result[3] if needs[3] else None
    else:
        saved = (grad, q, k, v, mask, slopes, seed, out, lse, *ctx.facts)
        result = GRAD.dispatched(*saved) if any(needs[:3]) else result
        of_mask = MASK_GRAD.dispatched(*saved) if needs[3] else None
    three = (g if need else None for g, need in zip(result, needs[:3]))
    return *three, of_mask, *(None,) * 10


_facts = "bool is_causal, float scale, int window, float softcap, bool bottom, float dropout, int tile, int live"
_scores = "Tensor? slopes, Tensor? seed"
VARIANT = Operator(
    f"attention_bent(Tensor q, Tensor k, Tensor v, Tensor? mask, {_scores}, {_facts}) -> (Tensor, Tensor)",
    _run, _shapes, save=_save, backward=_backward,
)  # fmt: skip
GRAD = Operator(
    f"attention_bent_grad(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, {_scores}, Tensor out, Tensor lse,"
    f" {_facts}) -> (Tensor, Tensor, Tensor)",
    _run_grad, _grad_shapes,
)  # fmt: skip
MASK_GRAD = Operator(
    f"attention_mask_grad(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor mask, {_scores}, Tensor out, Tensor lse,"
    f" {_facts}) -> Tensor",
    _run_mask_grad, _mask_shape,
)  # fmt: skip


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slopes: Tensor | None, facts: Facts,
    seed: Tensor | None = None,
) -> Tensor:
    """Over tensors of four dimensions that belong together."""
    if slopes is not None and slopes.requires_grad and torch.is_grad_enabled():
        return by_scores(q, k, v, mask, slopes, seed, facts)[0]
    out: Tensor = VARIANT.call(q, k, v, mask, slopes, seed, *facts)[0]
    return out
