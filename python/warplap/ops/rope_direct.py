"""rope at once, over plain tensors that nobody wants a gradient of: what a call needs to know follows from how its
tensors lie, and is found out once for each way."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _warplap
from ..operator.library import FLOATS, ordinary
from ..operator.eager import PLAIN, is_watched
from .rope_problem import Facts, call, check
from .rope import lies, rows_of

# A shape and strides.
Form = tuple[tuple[int, ...], tuple[int, ...]]


class _Recipe(NamedTuple):
    """A call, and the forms that it takes tensors in and users get answers in."""

    ready: _warplap.Prepared
    takes: tuple[Form | None, ...]
    gives: tuple[Form, ...]


def _form(t: Tensor) -> Form:
    return tuple(t.shape), tuple(t.stride())


@functools.lru_cache(maxsize=4096)
def _recipe(tensors: tuple[Any, ...], wide: bool, interleaved: bool, plain: int, heads_dim: int) -> _Recipe | None:
    """None where something has to be copied, cast or refused: the general way does that."""
    make = lambda way: None if way is None else torch.empty_strided(way[0], way[1], dtype=way[2], device="meta")
    own: list[Any] = [make(way) for way in tensors]
    q, k, cos, sin, positions, bias = own
    same = all(t is None or t.dtype == q.dtype for t in (k, bias)) and cos.dtype == sin.dtype
    if q.dtype not in FLOATS or cos.dtype not in (torch.float32, q.dtype) or not same:
        return None
    if positions is not None and positions.dtype not in (torch.int64, torch.int32):
        return None
    try:
        place = check(q, k, cos, sin, positions, bias, wide, plain, heads_dim)
        given = [t for t in (q, k) if t is not None]
        heads = [t.movedim(place, -2) for t in given]
        flat = [t.view(-1, *t.shape[-2:]) for t in heads]
        tables = [t.view(-1, t.shape[-1]) for t in (cos, sin)]
        line = None if positions is None else positions.view(-1)
    except (RuntimeError, ValueError):
        return None
    n, columns = tables[0].shape
    ldt = columns if n == 1 else tables[0].stride(0)
    level = all(t.stride(1) == 1 and (n == 1 or t.stride(0) == ldt >= columns) for t in tables)
    dense = all(t is None or t.stride(0) == 1 for t in (line, bias)) and (line is None or len(line) == len(flat[0]))
    small = all(t.shape[0] * max(t.stride(0), 1) <= 1 << 31 for t in (*flat, *tables))
    if not level or not dense or not small or not all(map(lies, flat)) or not ordinary(*flat, *tables):
        return None
    dtypes = q.dtype, cos.dtype, None if positions is None else positions.dtype
    lie = [rows_of(t) for t in flat] + [None]
    facts = Facts(wide, interleaved, plain, False)
    ready = call(lie[0], lie[1], (n, columns, ldt), dtypes, facts, bias is not None, False)
    fresh = [torch.empty(t.shape, device="meta") for t in heads]
    gives = tuple(_form(t.movedim(-2, place)) for t in fresh)
    takes = [*flat, *([None] if k is None else []), *tables, line, bias]
    return _Recipe(ready, tuple(None if t is None else _form(t) for t in takes), gives)


def rope(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, interleaved: bool,
    bias: Tensor | None, wide: bool, plain: int, heads_dim: int,
) -> Any:  # fmt: skip
    """None where it is not for this way to do."""
    own = (q, k, cos, sin, positions, bias)
    if is_watched() or not all(t is None or type(t) in PLAIN for t in own):
        return None
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in own):
        return None
    ways: tuple[Any, ...] = tuple(None if t is None else (t.shape, t.stride(), t.dtype) for t in own)
    recipe = _recipe(ways, wide, interleaved, plain, heads_dim)
    if recipe is None or any(t is not None and t.is_neg() for t in own):
        return None
    if q.is_cuda and any(t is not None and t.data_ptr() % 16 for t in own):
        return None
    taken = [
        t if t is None or form is None or way[:2] == form else t.as_strided(*form)
        for t, way, form in zip(own, ways, recipe.takes)
    ]
    found = recipe.ready.direct(*taken)
    if found is None:
        return None
    if k is None:
        return found.as_strided(*recipe.gives[0])
    return found[0].as_strided(*recipe.gives[0]), found[1].as_strided(*recipe.gives[1])
