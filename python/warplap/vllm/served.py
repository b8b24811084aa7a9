"""A dense linear of a server: by our choice at numbers of tokens where a race was won, by torch at all others.

``torch.ops.warplap.served_linear(x, w, bias)`` is one operator of a compiled graph, whatever was won: what is known may
change without the graph being another one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _warplap
from ..operator.declare import Operator
from . import known

_Layer = tuple[int, int, torch.dtype, torch.device, bool]

# By a layer's sizes, the numbers of tokens (the largest that share a race) at which a variant of ours or a library's
# other choice won.
_won: dict[_Layer, frozenset[int]] = {}


def _layer(w: Tensor, bias: Tensor | None) -> _Layer:
    return (w.shape[0], w.shape[1], w.dtype, w.device, bias is not None)


def text(w: Tensor, bias: Tensor | None, tokens: int) -> str:
    """The problem of a layer at a number of tokens."""
    few = w.new_empty((16, w.shape[1]))
    return known.at(_warplap.linear_problem(few, w, bias, None, None), "m", tokens)


def decide(w: Tensor, bias: Tensor | None, sizes: list[int], race: bool) -> frozenset[int]:
    """At which numbers of tokens a layer is run by us, from what is known; asked once for layers of the same sizes."""
    layer = _layer(w, bias)
    if layer in _won:
        return _won[layer]
    gpu = w.device.index if w.is_cuda else None
    texts = {size: text(w, bias, size) for size in sizes}
    if race:
        known.raced(texts.values(), gpu)
    won = set()
    for size, problem in texts.items():
        best = known.lookup(problem, gpu)
        if best is not None and best.is_worth_it:
            won.add(known.shared(size))
    _won[layer] = frozenset(won)
    return _won[layer]


def prime(w: Tensor, bias: Tensor | None, tokens: list[int]) -> None:
    """Runs a layer at these numbers of tokens once: nothing is met for the first time while a graph is captured."""
    if not tokens or not w.is_cuda:
        return
    x = w.new_zeros((max(tokens), w.shape[1]))
    for size in tokens:
        _run(x[:size], w, bias)


def forget() -> None:
    """Forgets every decision: what is known has changed."""
    _won.clear()


def _run(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    won = _won.get(_layer(w, bias))
    if won and known.shared(x.shape[0]) in won:
        result = _warplap.linear_direct(x, w, bias, None)
        if result is not None:
            return result  # type: ignore[no-any-return]
    return F.linear(x, w, bias)


SERVED = Operator(
    "served_linear(Tensor x, Tensor w, Tensor? bias) -> Tensor", _run, lambda x, w, bias: x.new_empty((len(x), len(w)))
)
