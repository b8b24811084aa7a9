"""rope over torch tensors: operators, shapes under tracing, gradients, and torch's own as a candidate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..operator import cuda, problem_fields
from ..operator.compile import fake
from ..operator.library import floats, lib, ordinary, shares
from ..operator.eager import PLAIN, is_watched, operator
from .rope_problem import Facts, Rows, call, check, tokens_of

_tags = (torch.Tag.pt2_compliant_tag,)
_given = "Tensor cos, Tensor sin, Tensor? positions, Tensor? bias, bool wide, bool interleaved, int plain, bool back"
for _schema in (f"rope(Tensor x, {_given}) -> Tensor", f"rope_pair(Tensor x, Tensor k, {_given}) -> (Tensor, Tensor)"):
    lib.define(_schema, tags=_tags)


# By torch.


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
    """What torch has for it, in float32: products of the heads and of their halves the other way round."""
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
    taken, found = 0, []
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
        found.append((torch.cat((turned, y[:, turned.shape[1] :]), 1) if plain else turned).to(x.dtype))
    return found[0] if k is None else tuple(found)


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    given = problem_fields.fields(problem)
    flags = {name: given.get(name) == "true" for name in ("wide", "back")}
    return {**flags, "interleaved": given["pairs"] == "interleaved", "plain": int(given.get("plain", 0))}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    given = problem_fields.fields(problem)
    if given.get("inplace") == "true":
        return "torch turns into new memory"
    # Heads at the end are those of k where there is one.
    return "heads of k that are not turned" if "hk" in given and "plain" in given else None


# By whoever is fastest here and right.


def lies(t: Tensor) -> bool:
    """Whether heads lie one after another within rows, on addresses that vectors may have."""
    rows, heads, d = t.shape
    ld, step, one = t.stride()
    packed = (one == 1 or d == 1) and (step == d or heads == 1) and (ld >= heads * d or rows == 1)
    return packed and not t.is_neg() and (not t.is_cuda or t.data_ptr() % 16 == 0)


def _lent(t: Tensor) -> Tensor:
    """The tensor as kernels take it; a copy where it does not lie so."""
    if lies(t):
        return t
    t = t.resolve_neg().contiguous()
    return cuda.aligned(t) if t.is_cuda else t


def rows_of(t: Tensor) -> Rows:
    rows, heads, d = t.shape
    return Rows(rows, heads, d, heads * d if rows == 1 else t.stride(0))


def _tables(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, int]:
    """Cosines and sines as kernels take them, and the elements from a row to the next: the same for both."""
    n, columns = cos.shape
    lies = lambda t: t.stride(1) == 1 and t.stride(0) >= columns and not t.is_neg()
    if n == 1 or not (lies(cos) and lies(sin) and cos.stride(0) == sin.stride(0)):
        cos, sin = cos.resolve_neg().contiguous(), sin.resolve_neg().contiguous()
    if cos.is_cuda and (cos.data_ptr() | sin.data_ptr()) % 16:
        cos, sin = (t.clone(memory_format=torch.contiguous_format) for t in (cos, sin))
    return cos, sin, columns if n == 1 else cos.stride(0)


def _run(
    x: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, given: Facts,
    inplace: bool = False,
) -> Any:  # fmt: skip
    """What no problem expresses goes to torch; in place it gives None."""
    if x.numel() == 0 and (k is None or k.numel() == 0):
        return x.new_empty(x.shape) if k is None else (x.new_empty(x.shape), k.new_empty(k.shape))
    cos, sin, ldt = _tables(cos, sin)
    positions = None if positions is None else positions.contiguous()
    bias = None if bias is None else cuda.aligned(bias.contiguous()) if bias.is_cuda else bias.contiguous()
    x, k = _lent(x), None if k is None else _lent(k)
    found = None
    lie, lie_k = rows_of(x), None if k is None else rows_of(k)
    few = all(one is None or one.rows * one.ld <= 1 << 31 for one in (lie, lie_k)) and cos.shape[0] * ldt <= 1 << 31
    if few and ordinary(x, x if k is None else k, cos):
        dtypes = x.dtype, cos.dtype, None if positions is None else positions.dtype
        try:
            ready = call(lie, lie_k, (*cos.shape, ldt), dtypes, given, bias is not None, inplace)
            found = ready(x, k, cos, sin, positions, bias)
            if inplace:
                return None
        except NotImplementedError as why:
            cuda.tell("torch", why)
    if found is None:
        found = by_torch(x, k, cos, sin, positions, bias, **given._asdict())
        if inplace:
            for to, new in zip((x, k), found if isinstance(found, tuple) else (found,)):
                to.copy_(new)  # type: ignore[union-attr]
            return None
    return found


def _one(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, wide: bool, interleaved: bool,
    plain: int, back: bool,
) -> Any:  # fmt: skip
    return _run(x, None, cos, sin, positions, bias, Facts(wide, interleaved, plain, back))


def _pair(
    x: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, wide: bool,
    interleaved: bool, plain: int, back: bool,
) -> Any:  # fmt: skip
    return _run(x, k, cos, sin, positions, bias, Facts(wide, interleaved, plain, back))


for _device in ("CPU", "CUDA"):
    lib.impl("rope", _one, _device)
    lib.impl("rope_pair", _pair, _device)


@fake("rope")
def _one_fake(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


@fake("rope_pair")
def _pair_fake(x: Tensor, k: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), k.new_empty(k.shape)


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
    down = _one_node(grad, cos, sin, positions, None, *same, not back)
    return down, None, None, None, _sums(down) if ctx.needs_input_grad[4] else None, None, None, None, None


def _save_pair(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, cos, sin, positions, _, *ctx.facts = inputs
    ctx.save_for_backward(cos, sin, positions)


def _pair_backward(ctx: Any, grad: Tensor, grad_k: Tensor) -> tuple[Any, ...]:
    cos, sin, positions = ctx.saved_tensors
    *same, back = ctx.facts
    down, down_k = _pair_node(grad, grad_k, cos, sin, positions, None, *same, not back)
    of_bias = _sums(down, down_k) if ctx.needs_input_grad[5] else None
    return down, down_k, None, None, None, of_bias, None, None, None, None


_one_node = operator("rope", _one, _save_one, _one_backward).call
_pair_node = operator("rope_pair", _pair, _save_pair, _pair_backward).call


# The door.


def _flat(t: Tensor, heads_dim: int) -> Tensor:
    """Rows of heads; a view where memory allows it."""
    moved = t.movedim(heads_dim, -2) if heads_dim != t.ndim - 2 else t
    return moved.reshape(math.prod(moved.shape[:-2]), *moved.shape[-2:])


def _shaped(found: Tensor, like: Tensor, heads_dim: int) -> Tensor:
    """Rows of heads in the form of what they were made of."""
    moved = found.view(*tokens_of(like.shape, heads_dim), *found.shape[1:])
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
    x: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, bias: Tensor | None, given: Facts
) -> bool:
    """In the memory of x and k, where they lie so that it can be."""
    if not lies(x) or (k is not None and not lies(k)):
        return False
    if k is not None and shares(x, k):
        joined = _joined(x, k)
        if joined is None:
            return False
        x, k = joined, None
    _run(x, k, cos, sin, positions, bias, given, inplace=True)
    return True


def rope(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, interleaved: bool,
    bias: Tensor | None, inplace: bool, wide: bool, plain: int, heads_dim: int,
) -> Any:  # fmt: skip
    heads_dim = check(q, k, cos, sin, positions, bias, wide, plain, heads_dim)
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
    given = Facts(wide, interleaved, plain, False)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, cos, sin, bias))
    if double or (wanted and (cos.requires_grad or sin.requires_grad)):  # tables that are learnt are torch's
        found = by_torch(x, y, cos, sin, positions, bias, **given._asdict())
    elif inplace and not wanted and not torch.compiler.is_compiling() and _is_plain(q, k, cos, sin, positions, bias):
        own = shares(x, q) and (y is None or k is None or shares(y, k))
        if own and _in_place(x, y, cos, sin, positions, bias, given):
            return q if k is None else (q, k)
        found = _run(x, y, cos, sin, positions, bias, given)
    elif y is None:
        found = _one_node(x, cos, sin, positions, bias, *given)
    else:
        found = _pair_node(x, y, cos, sin, positions, bias, *given)
    if k is None:
        return _shaped(found, q, heads_dim)
    return _shaped(found[0], q, heads_dim), _shaped(found[1], k, heads_dim)


def _is_plain(*tensors: Tensor | None) -> bool:
    return not is_watched() and all(t is None or type(t) in PLAIN for t in tensors)
