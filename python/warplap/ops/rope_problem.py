"""rope without torch: what a call asks of shapes, and its problem, ready to be called."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, Sequence

from .. import _warplap
from ..operator.problem_fields import DTYPES

_POSITIONS = {"int32": "i32", "int64": "i64"}


class Facts(NamedTuple):
    """How heads are turned."""

    wide: bool
    interleaved: bool
    plain: int
    back: bool


def name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


class Rows(NamedTuple):
    """How heads lie: rows, heads, elements of a head, elements from a row to the next."""

    rows: int
    heads: int
    d: int
    ld: int


@functools.lru_cache(maxsize=4096)
def call(
    x: Rows, k: Rows | None, table: tuple[int, int, int], dtypes: tuple[Any, Any, Any], facts: Facts, bias: bool,
    inplace: bool,
) -> _warplap.Prepared:  # fmt: skip
    """The call for heads that lie so, ready. ``table`` is its rows, columns and the elements from a row to the next;
    ``dtypes`` are of heads, table and positions."""
    n, columns, ldt = table
    dtype, angles, positions = (None if t is None else name_of(t) for t in dtypes)
    form = f"rope:rows={x.rows},h={x.heads},d={x.d},rot={columns if facts.wide else 2 * columns},n={n}"
    form += f",dtype={DTYPES[dtype or '']},table={DTYPES[angles or '']},ld={x.ld},ldt={ldt}"
    if k is not None:
        form += f",hk={k.heads},ldk={k.ld}"
    if positions is not None:
        form += f",positions={_POSITIONS[positions]}"
    has = {"wide": facts.wide, "bias": bias, "back": facts.back, "inplace": inplace}
    form += "".join(f",{name}=true" for name, value in has.items() if value)
    form += f",plain={facts.plain},pairs={'interleaved' if facts.interleaved else 'halves'}"
    return _warplap.Prepared(form)


def place(heads_dim: int, ndim: int) -> int:
    """The dimension of heads, from the first on."""
    if not -ndim <= heads_dim < ndim or heads_dim % ndim == ndim - 1:
        raise ValueError(f"heads_dim: is {heads_dim}, expected one of {ndim} dimensions but the last")
    return heads_dim % ndim


def tokens_of(shape: Sequence[int], heads_dim: int) -> tuple[int, ...]:
    """All dimensions but those of heads and of their elements."""
    return tuple(n for i, n in enumerate(shape[:-1]) if i != heads_dim)


def spreads(lead: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether a table's rows, one after another and from the first on again, are those of tokens."""
    lead = list(lead)
    while lead and lead[0] == 1:
        lead.pop(0)
    return len(lead) <= len(tokens) and lead == list(tokens[len(tokens) - len(lead) :])


def check(
    q: Any, k: Any, cos: Any, sin: Any, positions: Any, bias: Any, wide: bool, plain: int, heads_dim: int
) -> int:
    """Whether shapes belong together; gives the dimension of heads."""
    if q.ndim < 2:
        raise ValueError(f"q: has {q.ndim} dimensions, expected 2 or more (heads and their elements)")
    heads_dim = place(heads_dim, q.ndim)
    tokens, d, heads = tokens_of(q.shape, heads_dim), q.shape[-1], q.shape[heads_dim]
    if k is not None:
        if k.ndim != q.ndim or tokens_of(k.shape, heads_dim) != tokens or k.shape[-1] != d:
            raise ValueError(f"k: has shape {list(k.shape)}, expected {list(q.shape)} but for the number of heads")
        heads += k.shape[heads_dim]
    if tuple(cos.shape) != tuple(sin.shape):
        raise ValueError(f"sin: has shape {list(sin.shape)}, expected {list(cos.shape)} like cos")
    if cos.ndim < 2:
        raise ValueError(f"cos: has {cos.ndim} dimensions, expected 2 or more (positions and columns)")
    columns = cos.shape[-1]
    rot = columns if wide else 2 * columns
    if rot > d or rot % 2 or rot == 0:
        most = f"an even number of at most {d}" if wide else f"at most {d // 2}, one a pair"
        raise ValueError(f"cos: has {columns} columns, expected {most}")
    if positions is None:
        if not spreads(cos.shape[:-1], tokens):
            lead, expected = list(cos.shape[:-1]), list(tokens)
            raise ValueError(f"cos: has rows of shape {lead}, expected the last of {expected}, or positions")
    elif cos.ndim != 2:
        raise ValueError(f"cos: has {cos.ndim} dimensions, expected 2 where positions are given")
    elif positions.ndim > len(tokens) or tuple(positions.shape) != tokens[len(tokens) - positions.ndim :]:
        raise ValueError(f"positions: has shape {list(positions.shape)}, expected {list(tokens)} or the last of it")
    if plain and (k is not None or not 0 <= plain < heads):
        what = "0 beside k" if k is not None else f"a number from 0 to {heads - 1}"
        raise ValueError(f"plain: is {plain}, expected {what}")
    if bias is not None and tuple(bias.shape) != (heads * d,):
        raise ValueError(f"bias: has shape {list(bias.shape)}, expected [{heads * d}]")
    return heads_dim


def problem(
    q: Any, k: Any, cos: Any, sin: Any, *, positions: Any = None, interleaved: bool = False, bias: Any = None,
    inplace: bool = False, wide: bool = False, plain: int = 0, heads_dim: int = -2,
) -> str:  # fmt: skip
    """The problem that a call is, in its text form."""
    heads_dim = check(q, k, cos, sin, positions, bias, wide, plain, heads_dim)
    rows, d = math.prod(tokens_of(q.shape, heads_dim)), q.shape[-1]
    lie = lambda t: None if t is None else Rows(rows, t.shape[heads_dim], d, t.shape[heads_dim] * d)
    table = math.prod(cos.shape[:-1]), cos.shape[-1], cos.shape[-1]
    dtypes = q.dtype, cos.dtype, None if positions is None else positions.dtype
    facts = Facts(wide, interleaved, plain, False)
    return call(lie(q), lie(k), table, dtypes, facts, bias is not None, inplace).problem
