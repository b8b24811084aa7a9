"""attention over tensors with gaps between their rows: queries, keys and values that are parts of one projection, say.

Torch's kernels read such tensors where they lie, ours read copies. Which is faster depends on the sizes: the two meet
once for each way to lie, in the race of all callables (``_steps``). Torch answers where nothing may be measured.
"""

from __future__ import annotations

from typing import Any

from ... import _warplap
from ...operator.call.eager import is_watched
from ...operator.layout import aligned
from ...operator.optional_torch import F, Tensor
from ...training.steps import Call, Steps
from .calls import is_in, order_of

_steps = Steps("attention_gaps", "qkvm", torchs=True)

# How many times their own elements the three may reach over to race, together: parts of one projection each reach over
# all of it.
_REACH = 4


def direct(q: Any, k: Any, v: Any, is_causal: bool, scale: float | None, gqa: bool) -> Any:
    """By whoever was chosen for tensors like these, without torch's dispatcher; None where nobody was, or where
    somebody wants to see it. All are plain tensors."""
    fits = len(_steps) and q.ndim == k.ndim == v.ndim == 4 and (gqa or q.shape[1] == k.shape[1])
    if not fits:
        return None
    call = _steps.get((q, k, v), _facts(q, None, is_causal, scale))
    return None if call is None else call(q, k, v)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """By torch, or by our kernels on copies; the mask has none of the gaps."""
    call = _steps.get((q, k, v), _facts(q, mask, is_causal, scale)) or _choose(q, k, v, mask, is_causal, scale)
    return call(q, k, v, mask)


def explained(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, *, mask: Any = None, is_causal: bool = False,
    scale: float | None = None, **_: Any,
) -> str | None:  # fmt: skip
    """Who answers calls with these tensors, for people; None where they have no gaps."""
    if not q.ndim == k.ndim == v.ndim == 4 or order_of(q, k, v) is not None:
        return None
    added = attn_mask if mask is None else mask
    call = _steps.get((q, k, v), _facts(q, added, is_causal, scale))
    if call is None:
        who = "a call races torch, which reads them where they lie, and the winner on copies"
    else:
        who = "the winner reads copies" if call.__name__ == "own" else "torch answers"
    return f"between rows of q, k or v: {who}"


def _facts(q: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> tuple[Any, ...]:
    return mask is None, is_causal, q.shape[-1] ** -0.5 if scale is None else scale


def _choose(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Call:
    gqa = q.shape[1] != k.shape[1]
    plain = not gqa and scale == q.shape[3] ** -0.5

    def own(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        a, b, c = (_contiguous(t, q.stride(1) > q.stride(2)) for t in (q, k, v))
        result: Any = _warplap.attention_new(a, b, c, mask, is_causal, scale)
        return result  # type: ignore[no-any-return]

    def theirs(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        if plain:  # arguments by name cost too
            return F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal)
        return F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=gqa)

    facts = _facts(q, mask, is_causal, scale)
    # Of a cache that is nearly empty a race would draw all.
    if sum(map(_reach, (q, k, v))) > _REACH * (q.numel() + k.numel() + v.numel()):
        _steps.keep((q, k, v), facts, theirs)
        return theirs
    problem = _warplap.attention_problem(q, k, v, mask, is_causal, scale)
    apart = "_".join(map(_apart, (q, k, v)))
    chosen = _steps.choose((q, k, v), facts, f"none,apart={apart}", own, theirs, problem)
    if chosen is None and _warplap.mode() == "off" and not is_watched():
        _steps.keep((q, k, v), facts, theirs)
    return chosen or theirs


def _contiguous(t: Tensor, heads_first: bool) -> Tensor:
    """All in the order of q, in which the answer is asked for."""
    t = t.contiguous() if heads_first else t.transpose(1, 2).contiguous().transpose(1, 2)
    return aligned(t) if t.is_cuda else t


def _reach(t: Tensor) -> int:
    """How many elements lie between a tensor's first and last one, those two among them."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))


def _apart(t: Tensor) -> str:
    """How a tensor lies, for all lengths of a sequence alike: how far apart batches are changes with these."""
    order = next((order for order in ("bhsd", "bshd") if is_in(order, t)), None)
    return order or "x".join(str(s) if n > 1 else "" for n, s in zip(t.shape[1:], t.stride()[1:]))
