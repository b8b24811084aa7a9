"""attention over tensors with gaps between their rows: queries, keys and values that are parts of one projection, say.

Torch's kernels read such tensors where they lie, ours read copies. Which is faster depends on the sizes: the two meet
once for each way to lie, in the race of all callables (``_steps``). Torch answers where nothing may be measured.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from . import _sdpa, _warplap
from ._bent import as_promised
from ._nodes import is_watched
from ._steps import Call, Steps
from ._training import is_in

_steps = Steps("attention_gaps", "qkvm", torchs=True)

# How many times their own elements the three may reach over to race, together: parts of one projection each reach over
# all of it.
_MOST = 4


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """By torch, or by our kernels on copies; the mask has none of the gaps."""
    lie = (q.stride(), k.stride(), v.stride())
    key = (q.shape, k.shape, v.shape, *lie, q.dtype, q.device, mask is None, is_causal, scale)
    call = _steps.chosen.get(key) or _choose(key, q, k, v, mask, is_causal, scale)
    return call(q, k, v, mask)


def _choose(
    key: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Call:
    gqa = q.shape[1] != k.shape[1]

    def own(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        a, b, c = (_without_gaps(t, q.stride(1) > q.stride(2)) for t in (q, k, v))
        return as_promised(_warplap.attention_new(a, b, c, mask, is_causal, scale), q, v)

    def theirs(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return as_promised(_sdpa.default(q, k, v, mask, causal=is_causal, scale=scale, gqa=gqa), q, v)

    given = tuple(None if t is None else t.detach() for t in (q, k, v, mask))
    # Of a cache that is nearly empty a race would draw all.
    if sum(map(_reach, (q, k, v))) > _MOST * (q.numel() + k.numel() + v.numel()):
        return _steps.keep(key, theirs)
    problem = _warplap.attention_problem(q, k, v, mask, is_causal, scale)
    apart = "_".join(map(_apart, (q, k, v)))
    chosen = _steps.choose(key, given, f"none,apart={apart}", own, theirs, problem)
    if chosen is None and _warplap.mode() == "off" and not is_watched():
        return _steps.keep(key, theirs)
    return chosen or theirs


def _without_gaps(t: Tensor, heads_first: bool) -> Tensor:
    return t.contiguous() if heads_first else t.transpose(1, 2).contiguous().transpose(1, 2)


def _reach(t: Tensor) -> int:
    """How many elements lie between a tensor's first and last one, those two among them."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))


def _apart(t: Tensor) -> str:
    """How a tensor lies, for all lengths of a sequence alike: how far apart batches are changes with these."""
    order = next((order for order in ("bhsd", "bshd") if is_in(order, t)), None)
    return order or "x".join(str(s) if n > 1 else "" for n, s in zip(t.shape[1:], t.stride()[1:]))
