"""``warplap.rope``: rotary position embedding of q and k in one launch."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

from ..operator.call.call_cache import prepared_call
from ..operator.call.direct import Direct, Plan
from ..operator.call.eager import is_plain
from ..operator.call.fallback import kernel_or_torch
from ..operator.candidate import Candidate
from ..operator.checks import FLOATS, MOST, floats, ordinary, shares
from ..operator.declare import Operator, like
from ..operator.layout import kernel_input
from ..operator.optional_torch import Tensor, torch
from ..operator.problem_text import dtype_name, fields, text
from ..operator.public import Public, compiling

_POSITIONS = {"int32": "i32", "int64": "i64"}


# The problem.


class Facts(NamedTuple):
    """How heads are turned."""

    wide: bool
    interleaved: bool
    plain: int
    back: bool


class Rows(NamedTuple):
    """How heads lie: rows, heads, elements of a head, elements from a row to the next."""

    rows: int
    heads: int
    d: int
    ld: int


@prepared_call
def _call(
    x: Rows, k: Rows | None, table: tuple[int, int, int], dtypes: tuple[Any, Any, Any], facts: Facts, bias: bool,
    inplace: bool,
) -> str:  # fmt: skip
    """Heads that lie so. ``table`` is its rows, columns and the elements from a row to the next; ``dtypes`` are of
    heads, table and positions."""
    n, columns, ldt = table
    dtype, angles, positions = dtypes
    return text(
        "rope", rows=x.rows, h=x.heads, d=x.d, rot=columns if facts.wide else 2 * columns, n=n,
        dtype=dtype_name(dtype, "q"), table=dtype_name(angles, "cos"), ld=x.ld, ldt=ldt,
        hk=None if k is None else k.heads, ldk=None if k is None else k.ld,
        positions=None if positions is None else dtype_name(positions, "positions", _POSITIONS),
        wide=facts.wide, bias=bias, back=facts.back, inplace=inplace,
        plain=facts.plain, pairs="interleaved" if facts.interleaved else "halves",
    )  # fmt: skip


def _place(heads_dim: int, ndim: int) -> int:
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


def _check(
    q: Any, k: Any, cos: Any, sin: Any, positions: Any, bias: Any, wide: bool, plain: int, heads_dim: int
) -> int:
    """Whether shapes belong together; gives the dimension of heads."""
    if q.ndim < 2:
        raise ValueError(f"q: has {q.ndim} dimensions, expected 2 or more (heads and their elements)")
    heads_dim = _place(heads_dim, q.ndim)
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


def _problem(
    q: Any, k: Any, cos: Any, sin: Any, positions: Any = None, interleaved: bool = False, bias: Any = None,
    inplace: bool = False, wide: bool = False, plain: int = 0, heads_dim: int = -2,
) -> str:  # fmt: skip
    heads_dim = _check(q, k, cos, sin, positions, bias, wide, plain, heads_dim)
    count, d = math.prod(tokens_of(q.shape, heads_dim)), q.shape[-1]
    rows = lambda t: None if t is None else Rows(count, t.shape[heads_dim], d, t.shape[heads_dim] * d)
    table = math.prod(cos.shape[:-1]), cos.shape[-1], cos.shape[-1]
    dtypes = q.dtype, cos.dtype, None if positions is None else positions.dtype
    facts = Facts(wide, interleaved, plain, False)
    return _call(rows(q), rows(k), table, dtypes, facts, bias is not None, inplace).problem


# By torch's own operators, which race too.


def _other(t: Tensor, interleaved: bool) -> Tensor:
    """Of each element the one that it is turned with."""
    if interleaved:
        return t.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.cat(t.chunk(2, -1)[::-1], -1)


def _spread(t: Tensor, rows: int, positions: Tensor | None) -> Tensor:
    """The table's row for each row, not a number where it has none."""
    n = t.shape[0]
    if positions is None:
        return t if n == rows else t.repeat(-(-rows // n), 1)[:rows]
    inside = (positions >= 0) & (positions < n)
    return torch.where(inside[:, None], t[torch.where(inside, positions, 0).long()], math.nan)


def by_torch(
    x: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None = None, bias: Tensor | None = None,
    *, wide: bool, interleaved: bool, plain: int, back: bool,
) -> Any:  # fmt: skip
    """In float32: products of the heads and of their halves the other way round."""
    rows, to = x.shape[0], torch.promote_types(x.dtype, torch.float32)
    cos, sin = (_spread(t.to(to), rows, positions) for t in (cos, sin))
    if not wide:
        twice = lambda t: t.repeat_interleave(2, -1) if interleaved else torch.cat((t, t), -1)
        cos, sin = twice(cos), twice(sin)
    rot = cos.shape[-1]
    sign = torch.ones(rot, dtype=to, device=x.device)
    sign[: rot // 2] = -1.0
    sin = sin * (sign.view(2, -1).t().flatten() if interleaved else sign)
    sin = _other(sin, interleaved) if back else sin
    cos, sin = cos[:, None], sin[:, None]
    taken, result = 0, []
    for t in (x,) if k is None else (x, k):
        heads, d = t.shape[1:]
        y = t.to(to)
        if bias is not None:
            y = y + bias[taken : taken + heads * d].to(to).view(heads, d)
        taken += heads * d
        own = y[..., :rot] if plain == 0 else y[:, : heads - plain, :rot]
        turned = own * cos + _other(own, interleaved) * sin
        if rot < d:
            turned = torch.cat((turned, y[:, : turned.shape[1], rot:]), -1)
        result.append((torch.cat((turned, y[:, turned.shape[1] :]), 1) if plain else turned).to(x.dtype))
    return result[0] if k is None else tuple(result)


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    said = fields(problem)
    flags = {name: said.get(name) == "true" for name in ("wide", "back")}
    return {**flags, "interleaved": said["pairs"] == "interleaved", "plain": int(said.get("plain", 0))}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    said = fields(problem)
    if said.get("inplace") == "true":
        return "torch turns into new memory"
    # Heads at the end are those of k where there is one.
    return "heads of k that are not turned" if "hk" in said and "plain" in said else None


CANDIDATES = [Candidate("rope", "torch_rope", by_torch, fit, facts=facts, returns=True)]


# Over torch's tensors.


def _is_supported(t: Tensor) -> bool:
    """Whether heads lie one after another within rows, on addresses that vectors may have."""
    rows, heads, d = t.shape
    ld, step, one = t.stride()
    packed = (one == 1 or d == 1) and (step == d or heads == 1) and (ld >= heads * d or rows == 1)
    return packed and not t.is_neg() and (not t.is_cuda or t.data_ptr() % 16 == 0)


def _rows_of(t: Tensor) -> Rows:
    rows, heads, d = t.shape
    return Rows(rows, heads, d, heads * d if rows == 1 else t.stride(0))


def _tables(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, int]:
    """Cosines and sines as kernels take them, and the elements from a row to the next: the same for both."""
    n, columns = cos.shape
    level = lambda t: t.stride(1) == 1 and t.stride(0) >= columns and not t.is_neg()
    if n == 1 or not (level(cos) and level(sin) and cos.stride(0) == sin.stride(0)):
        cos, sin = cos.resolve_neg().contiguous(), sin.resolve_neg().contiguous()
    if cos.is_cuda and (cos.data_ptr() | sin.data_ptr()) % 16:
        cos, sin = (t.clone(memory_format=torch.contiguous_format) for t in (cos, sin))
    return cos, sin, columns if n == 1 else cos.stride(0)


def _is_bounded(*tensors: Tensor) -> bool:
    """Whether tensors span no more elements than problems have."""
    return all(t.shape[0] * max(t.stride(0), 1) <= MOST for t in tensors)


def _turned(
    x: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, facts: Facts,
    inplace: bool = False,
) -> Any:  # fmt: skip
    """What no problem expresses goes to torch; in place it gives None."""
    if x.numel() == 0 and (k is None or k.numel() == 0):
        return x.new_empty(x.shape) if k is None else (x.new_empty(x.shape), k.new_empty(k.shape))
    cos, sin, ldt = _tables(cos, sin)
    positions = None if positions is None else positions.contiguous()
    bias = kernel_input(bias)
    x, k = (t if t is None or _is_supported(t) else kernel_input(t) for t in (x, k))  # type: ignore[assignment]
    heads = [x] if k is None else [x, k]

    def by_kernel() -> Any:
        dtypes = x.dtype, cos.dtype, None if positions is None else positions.dtype
        of_k = None if k is None else _rows_of(k)
        ready = _call(_rows_of(x), of_k, (*cos.shape, ldt), dtypes, facts, bias is not None, inplace)
        return ready(x, k, cos, sin, positions, bias)

    def theirs() -> Any:
        result = by_torch(x, k, cos, sin, positions, bias, **facts._asdict())
        if not inplace:
            return result
        for to, new in zip(heads, result if isinstance(result, tuple) else (result,)):
            to.copy_(new)
        return None

    return kernel_or_torch(by_kernel, theirs, _is_bounded(*heads, cos) and ordinary(*heads, cos))


def _one(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, wide: bool, interleaved: bool,
    plain: int, back: bool,
) -> Any:  # fmt: skip
    return _turned(x, None, cos, sin, positions, bias, Facts(wide, interleaved, plain, back))


def _pair(
    x: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, wide: bool,
    interleaved: bool, plain: int, back: bool,
) -> Any:  # fmt: skip
    return _turned(x, k, cos, sin, positions, bias, Facts(wide, interleaved, plain, back))


# Gradients: heads turned back, and their sums over the rows for the bias.


def _sums(*gradients: Tensor) -> Tensor:
    over = [g.sum(0, dtype=torch.float32).flatten() for g in gradients]
    return torch.cat(over).to(gradients[0].dtype)


def _save_one(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, positions, _, *ctx.facts = inputs
    ctx.save_for_backward(cos, sin, positions)


def _one_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    cos, sin, positions = ctx.saved_tensors
    *same, back = ctx.facts
    down = ONE.call(grad, cos, sin, positions, None, *same, not back)
    return down, None, None, None, _sums(down) if ctx.needs_input_grad[4] else None, None, None, None, None


def _save_pair(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, cos, sin, positions, _, *ctx.facts = inputs
    ctx.save_for_backward(cos, sin, positions)


def _pair_backward(ctx: Any, grad: Tensor, grad_k: Tensor) -> tuple[Any, ...]:
    cos, sin, positions = ctx.saved_tensors
    *same, back = ctx.facts
    down, down_k = PAIR.call(grad, grad_k, cos, sin, positions, None, *same, not back)
    of_bias = _sums(down, down_k) if ctx.needs_input_grad[5] else None
    return down, down_k, None, None, None, of_bias, None, None, None, None


def _pair_shapes(x: Tensor, k: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), k.new_empty(k.shape)


_facts = "Tensor cos, Tensor sin, Tensor? positions, Tensor? bias, bool wide, bool interleaved, int plain, bool back"
ONE = Operator(f"rope(Tensor x, {_facts}) -> Tensor", _one, like(), save=_save_one, backward=_one_backward)
PAIR = Operator(
    f"rope_pair(Tensor x, Tensor k, {_facts}) -> (Tensor, Tensor)",
    _pair, _pair_shapes, save=_save_pair, backward=_pair_backward,
)  # fmt: skip


def _plan(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None,
    interleaved: bool, wide: bool, plain: int, heads_dim: int,
) -> Plan | None:  # fmt: skip
    """None where something has to be copied, cast or refused: the general way does that."""
    same = all(t is None or t.dtype == q.dtype for t in (k, bias)) and cos.dtype == sin.dtype
    if q.dtype not in FLOATS or cos.dtype not in (torch.float32, q.dtype) or not same:
        return None
    if positions is not None and positions.dtype not in (torch.int64, torch.int32):
        return None
    if any(t is not None and (t.device != q.device or (t.is_cuda and t.data_ptr() % 16)) for t in (k, cos, sin, bias)):
        return None
    place = _check(q, k, cos, sin, positions, bias, wide, plain, heads_dim)
    heads = [t.movedim(place, -2) for t in (q, k) if t is not None]
    flat = [t.view(-1, *t.shape[-2:]) for t in heads]
    tables = [t.view(-1, t.shape[-1]) for t in (cos, sin)]
    line = None if positions is None else positions.view(-1)
    n, columns = tables[0].shape
    ldt = columns if n == 1 else tables[0].stride(0)
    level = all(t.stride(1) == 1 and (n == 1 or t.stride(0) == ldt >= columns) for t in tables)
    dense = all(t is None or t.stride(0) == 1 for t in (line, bias)) and (line is None or len(line) == len(flat[0]))
    if not level or not dense or not all(map(_is_supported, flat)):
        return None
    if not _is_bounded(*flat, *tables) or not ordinary(*flat, *tables):
        return None
    dtypes = q.dtype, cos.dtype, None if positions is None else positions.dtype
    own = [_rows_of(t) for t in flat] + [None]
    facts = Facts(wide, interleaved, plain, False)
    ready = _call(own[0], own[1], (n, columns, ldt), dtypes, facts, bias is not None, False)
    at = lambda i, t: None if t is None else (i, t)
    second = flat[1] if len(flat) > 1 else None
    slots = (0, flat[0]), at(1, second), (2, tables[0]), (3, tables[1]), at(4, line), at(5, bias)
    made = [torch.empty(t.shape, device="meta").movedim(-2, place) for t in heads]
    return Plan(ready, slots, tuple((tuple(t.shape), tuple(t.stride())) for t in made))


_direct = Direct(_plan).call


def _flat(t: Tensor, heads_dim: int) -> Tensor:
    """Rows of heads; a view where memory allows it."""
    moved = t.movedim(heads_dim, -2) if heads_dim != t.ndim - 2 else t
    return moved.reshape(math.prod(moved.shape[:-2]), *moved.shape[-2:])


def _shaped(result: Tensor, like: Tensor, heads_dim: int) -> Tensor:
    """Rows of heads in the form of what they were made of."""
    moved = result.view(*tokens_of(like.shape, heads_dim), *result.shape[1:])
    return moved.movedim(-2, heads_dim) if heads_dim != like.ndim - 2 else moved


def _joined(x: Tensor, k: Tensor) -> Tensor | None:
    """Both as one where k's heads follow those of x in one tensor."""
    rows, heads, d = x.shape
    both = heads + k.shape[1]
    follows = k.data_ptr() == x.data_ptr() + heads * d * x.element_size() and x.stride() == k.stride()
    if not follows or rows == 1 or x.stride(0) < both * d:
        return None
    return x.as_strided((rows, both, d), x.stride())


def _in_place(
    x: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, facts: Facts
) -> bool:
    """In the memory of x and k, where they lie so that it can be."""
    if not _is_supported(x) or (k is not None and not _is_supported(k)):
        return False
    if k is not None and shares(x, k):
        joined = _joined(x, k)
        if joined is None:
            return False
        x, k = joined, None
    _turned(x, k, cos, sin, positions, bias, facts, inplace=True)
    return True


def of_tensors(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None,
    interleaved: bool, inplace: bool, wide: bool, plain: int, heads_dim: int,
) -> Any:  # fmt: skip
    heads_dim = _check(q, k, cos, sin, positions, bias, wide, plain, heads_dim)
    double = q.dtype == torch.float64
    if not double:
        floats(q=q, k=k, bias=bias)
    for name, t in (("cos", cos), ("sin", sin), ("positions", positions)):
        if t is not None and t.device != q.device:
            raise ValueError(f"{name}: is on {t.device}, expected {q.device} like q")
    if positions is not None and positions.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"positions: holds {positions.dtype}, expected int64 or int32")
    tokens = tokens_of(q.shape, heads_dim)
    if positions is not None:
        positions = positions.expand(tokens).reshape(-1)
    to = cos.dtype if cos.dtype in (torch.float32, q.dtype) and not double else q.dtype
    cos, sin = (t.reshape(-1, t.shape[-1]).to(to) for t in (cos, sin))
    x, y = _flat(q, heads_dim), None if k is None else _flat(k, heads_dim)
    facts = Facts(wide, interleaved, plain, False)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, cos, sin, bias))
    if double or (wanted and (cos.requires_grad or sin.requires_grad)):  # tables that are learnt are torch's
        result = by_torch(x, y, cos, sin, positions, bias, **facts._asdict())
    elif inplace and not wanted and is_plain(q, k, cos, sin, positions, bias):
        own = shares(x, q) and (y is None or k is None or shares(y, k))
        if own and _in_place(x, y, cos, sin, positions, bias, facts):
            return q if k is None else (q, k)
        result = _turned(x, y, cos, sin, positions, bias, facts)
    elif y is None:
        result = ONE.call(x, cos, sin, positions, bias, *facts)
    else:
        result = PAIR.call(x, y, cos, sin, positions, bias, *facts)
    if k is None:
        return _shaped(result, q, heads_dim)
    return _shaped(result[0], q, heads_dim), _shaped(result[1], k, heads_dim)


_public = Public(torch=of_tensors, problem=_problem, optional=("k", "positions", "bias"))


@_public
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
    if not inplace and not compiling():
        result = _direct((q, k, cos, sin, positions, bias), (interleaved, wide, plain, heads_dim))
        if result is not None:
            return result
    return _public.of(
        {"q": q, "k": k, "cos": cos, "sin": sin, "positions": positions, "bias": bias},
        interleaved=interleaved, inplace=inplace, wide=wide, plain=plain, heads_dim=heads_dim,
    )  # fmt: skip
