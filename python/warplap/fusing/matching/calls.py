"""Our operators as nodes of a rewritten graph. Each is called as the nodes in its place were, and gives what they
gave."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...ops import functions
from ...ops.norm import dense as norm_dense


def norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, kind: Any, eps: float) -> Tensor:
    result: Tensor = functions.norm(x, weight, bias, kind=kind, eps=eps)
    return result


def add_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, kind: Any, eps: float
) -> tuple[Tensor, Tensor]:
    """The norm of a sum, and the sum."""
    result: tuple[Tensor, Tensor] = functions.norm(x, weight, bias, residual=residual, kind=kind, eps=eps)
    return result


def norm_of_sum(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, kind: Any, eps: float
) -> Tensor:
    """The norm of a sum that nobody else reads."""
    result: Tensor = norm_dense.norm(x, residual, weight, bias, kind, eps, total_too=False)
    return result


def front_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    kind: Any,
    eps: float,
    before: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """The norm of what is left of x and a line before it, and of a residual; and their sum."""
    if residual is None and before is None and not dropout:
        return norm(x, weight, bias, kind, eps), x
    result: tuple[Tensor, Tensor] = functions.norm(
        x, weight, bias, residual=residual, kind=kind, eps=eps, before=before, dropout=dropout
    )
    return result


def linear(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    activation: Any,
    residual: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:
    result: Tensor = functions.linear(x, w, bias, activation, residual=residual, times=times)
    return result


def gated(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: Any) -> Tensor:
    result: Tensor = functions.gated_linear(x, w_gate, w_up, activation)
    return result


def activated(a: Tensor, b: Tensor, activation: Any) -> Tensor:
    """An activation that lets another tensor through."""
    result: Tensor = functions.gated(a, b, activation)
    return result


def gated_halves(x: Tensor, w: Tensor, activation: Any, first: int) -> Tensor:
    """The same of one weight, whose half that is activated comes first (0) or last (1)."""
    halves = w.chunk(2)
    return gated(x, halves[first], halves[1 - first], activation)


def norm_linear(
    x: Tensor,
    gain: Tensor | None,
    eps: float,
    w: Tensor,
    bias: Tensor | None,
    activation: Any,
    residual: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:
    """A layer behind an RMSNorm."""
    result: Tensor = functions.norm_linear(x, w, gain, bias, activation, residual=residual, times=times, eps=eps)
    return result


def norm_linears(x: Tensor, gain: Tensor | None, eps: float, layers: Any) -> tuple[Tensor, ...]:
    """Several layers behind one RMSNorm."""
    return tuple(norm_linear(x, gain, eps, w, bias, None) for w, bias in layers)


def norm_gated(x: Tensor, gain: Tensor | None, eps: float, w_gate: Tensor, w_up: Tensor, activation: Any) -> Tensor:
    """A gated pair behind an RMSNorm."""
    result: Tensor = functions.norm_linear(x, w_gate, gain, None, activation, up=w_up, eps=eps)
    return result


def softmax(x: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    result: Tensor = functions.softmax(x, mask, scale=scale)
    return result


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None, gqa: bool,
    window: int | None = None,
) -> Tensor:  # fmt: skip
    more: Any = {} if window is None else {"window": window}
    result: Tensor = functions.attention(q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=gqa, **more)
    return result


def cross_entropy(logits: Tensor, labels: Tensor, ignore: int, smoothing: float, reduction: Any) -> Tensor:
    loss: Tensor = functions.cross_entropy(
        logits, labels, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction
    )
    return loss.to(logits.dtype)


def linear_cross_entropy(
    x: Tensor, w: Tensor, labels: Tensor, bias: Tensor | None, ignore: int, smoothing: float, reduction: Any
) -> Tensor:
    """The loss of a projection that nobody else reads."""
    loss: Tensor = functions.linear_cross_entropy(
        x, w, labels, bias, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction
    )
    return loss.to(x.dtype)


def turned(x: Tensor, cos: Tensor, sin: Tensor, heads_dim: int) -> Tensor:
    """Heads turned by tables that have a dimension for them."""
    cos, sin = cos.squeeze(heads_dim), sin.squeeze(heads_dim)
    result: Tensor = functions.rope(x, None, cos, sin, wide=True, heads_dim=heads_dim)
    return result


def turned_pair(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, heads_dim: int) -> tuple[Tensor, Tensor]:
    """Two of them."""
    cos, sin = cos.squeeze(heads_dim), sin.squeeze(heads_dim)
    result: tuple[Tensor, Tensor] = functions.rope(q, k, cos, sin, wide=True, heads_dim=heads_dim)
    return result
