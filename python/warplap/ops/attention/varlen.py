"""attention over sequences that lie one behind the other without padding, with gradients."""

from __future__ import annotations

from typing import Any

from ...operator import autocast
from ...operator.call.fallback import kernel_or_torch
from ...operator.checks import NAMES, dims, floats, ordinary, whole_numbers
from ...operator.declare import Operator
from ...operator.layout import kernel_input
from ...operator.optional_torch import Tensor, torch
from .. import dropout as dropping
from . import calls
from .dense import check_variants
from .variants import Facts, by_autograd, by_scores, score_fields


def _has_kernels(q: Tensor, k: Tensor, v: Tensor, begins: Tensor) -> bool:
    """Whether kernels are for these: on a GPU those of tensor cores, which have half types."""
    wide = max(q.shape[2], v.shape[2])
    fits = ordinary(q, k, v) and wide <= 1024 and begins.shape[0] > 1
    return fits and not (q.is_cuda and (q.dtype == torch.float32 or wide > 256))


def _problem(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, b: int, longest: Any, facts: Facts) -> str:
    """The problem of the forward pass, without its log-sum-exps."""
    (tq, h, d), (tk, hkv, _), dv = q.shape, k.shape, v.shape[2]
    # A length that no sequence can have says no more than the total does, and a key of its own.
    sq, sk = min(longest[0], tq), min(longest[1], tk)
    sizes = f"attention:b={b},h={h},hkv={hkv},sq={sq},sk={sk},d={d},dv={dv},dtype={NAMES[q.dtype]},tq={tq},tk={tk}"
    usual = "" if facts.scale == d**-0.5 else f",scale={facts.scale!r}"
    return f"{sizes},causal={str(facts.is_causal).lower()}{usual},layout=bshd" + score_fields(None, slopes, facts)


def _check(name: str, begins: Tensor, rows: int, longest: int) -> None:
    """Whether offsets on the host are some of so many rows; on a GPU they are followed as far as they lead."""
    if begins.is_cuda:
        return
    lengths = begins.diff()
    if begins.shape[0] < 2 or int(begins[0]) != 0 or int(begins[-1]) != rows or bool((lengths < 0).any()):
        shown = begins.tolist() if begins.shape[0] <= 9 else [*begins[:4].tolist(), "…", int(begins[-1])]
        raise ValueError(f"cu_seqlens_{name}: is {shown}, expected numbers from 0 that ascend to {name}'s {rows} rows")
    if int(lengths.max()) > longest:
        result = int(lengths.max())
        raise ValueError(f"max_seqlen_{name}: is {longest}, expected at least the longest sequence's {result}")


def _laid(*tensors: Tensor) -> list[Tensor]:
    """In the order of slots, rows without gaps, where kernels may fetch from them."""
    return [kernel_input(t).transpose(0, 1) for t in tensors]


def _prepared(q: Tensor, k: Tensor, v: Tensor, slopes: Any, begins: tuple[Tensor, Tensor], args: Any) -> Any:
    """The calls of both passes."""
    longest, facts = args[:2], Facts(*args[2:])
    text = _problem(q, k, v, slopes, begins[0].shape[0] - 1, longest, facts)
    return calls.prepared(text)


def _run(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, seed: Tensor | None, begins_q: Tensor, begins_k: Tensor,
    *args: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    begins = (begins_q, begins_k)
    for name, offsets, t, longest in zip("qk", begins, (q, k), args):
        _check(name, offsets, t.shape[0], longest)

    def by_kernel() -> tuple[Tensor, Tensor]:
        call = _prepared(q, k, v, slopes, begins, args)[0]
        out, lse = call(*_laid(q, k, v), None, None, None, slopes, seed, None, None, *begins)
        return _rows(out), lse.contiguous()

    theirs = lambda: _by_scores(q, k, v, slopes, seed, begins, Facts(*args[2:]))
    return kernel_or_torch(by_kernel, theirs, _has_kernels(q, k, v, begins_q))


def _rows(t: Tensor) -> Tensor:
    return t.transpose(0, 1).contiguous()


def _stretches(begins: Tensor, rows: int) -> list[tuple[int, int]]:
    """Where sequences begin and end; nowhere outside."""
    at = begins.tolist()
    return [(min(max(a, 0), rows), min(max(b, a, 0), rows)) for a, b in zip(at, at[1:])]


def _by_scores(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, seed: Tensor | None, begins: tuple[Tensor, Tensor],
    facts: Facts,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Sequence by sequence by a matrix of scores."""
    h, out, lse = q.shape[1], [], []
    pairs = list(zip(_stretches(begins[0], q.shape[0]), _stretches(begins[1], k.shape[0])))
    for i, ((q0, q1), (k0, k1)) in enumerate(pairs):
        one = [t[a:b].transpose(0, 1)[None] for t, a, b in ((q, q0, q1), (k, k0, k1), (v, k0, k1))]
        o, sums = by_scores(one[0], one[1], one[2], None, slopes, seed, facts, first=i * h)
        out.append(o[0].transpose(0, 1))
        lse.append(sums[0])
    left = q.shape[0] - sum(o.shape[0] for o in out)  # rows that no sequence has
    out.append(q.new_zeros((max(left, 0), h, v.shape[2])))
    lse.append(q.new_full((h, max(left, 0)), float("-inf"), dtype=torch.float32))
    return torch.cat(out)[: q.shape[0]], torch.cat(lse, 1)[:, : q.shape[0]]


def _run_grad(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, seed: Tensor | None, begins_q: Tensor,
    begins_k: Tensor, out: Tensor, lse: Tensor, *args: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    begins = (begins_q, begins_k)

    def by_kernel() -> tuple[Tensor, ...]:
        call = _prepared(q, k, v, slopes, begins, args)[1]
        (a, b, c), (o, g) = _laid(q, k, v), _laid(out, grad)
        result = call(a, b, c, None, o, lse.contiguous(), g, None, None, None, slopes, seed, *begins)
        return tuple(map(_rows, result))

    theirs = lambda: _by_autograd(grad, q, k, v, slopes, seed, begins, Facts(*args[2:]), False)
    dq, dk, dv = kernel_or_torch(by_kernel, theirs, _has_kernels(q, k, v, begins_q))
    return dq.contiguous(), dk.contiguous(), dv.contiguous()


def _by_autograd(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, seed: Tensor | None,
    begins: tuple[Tensor, Tensor], facts: Facts, again: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return by_autograd(grad, (q, k, v), lambda a, b, c: _by_scores(a, b, c, slopes, seed, begins, facts)[0], again)


def _shapes(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    rows, heads = q.shape[:2]
    return q.new_empty((rows, heads, v.shape[2])), q.new_empty((heads, rows), dtype=torch.float32)


def _grad_shapes(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.facts = inputs[7:]
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, of_sums: Tensor | None = None) -> tuple[Tensor | None, ...]:
    q, k, v, slopes, seed, begins_q, begins_k, out, lse = ctx.saved_tensors
    result: tuple[Tensor, ...]
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        facts = Facts(*ctx.facts[2:])
        result = _by_autograd(grad, q, k, v, slopes, seed, (begins_q, begins_k), facts, True)
    else:
        result = GRAD.dispatched(grad, q, k, v, slopes, seed, begins_q, begins_k, out, lse, *ctx.facts)
    needed = (g if need else None for g, need in zip(result, ctx.needs_input_grad))
    return *needed, *(None,) * 12


_longest_of = "int longest_q, int longest_k"
_facts = f"{_longest_of}, bool is_causal, float scale, int window, float softcap, bool bottom, float dropout"
_inputs = "Tensor q, Tensor k, Tensor v, Tensor? slopes, Tensor? seed, Tensor begins_q, Tensor begins_k"
PACKED = Operator(
    f"attention_packed({_inputs}, {_facts}) -> (Tensor, Tensor)", _run, _shapes, save=_save, backward=_backward
)
GRAD = Operator(
    f"attention_packed_grad(Tensor grad, {_inputs}, Tensor out, Tensor lse, {_facts}) -> (Tensor, Tensor, Tensor)",
    _run_grad, _grad_shapes,
)  # fmt: skip


def _longest(name: str, said: int | None, begins: Tensor, rows: int) -> int:
    """The longest length as it was said, or as the offsets say it."""
    if said is None:
        if torch.compiler.is_compiling():
            return rows
        said = max(int(begins.diff().max()) if begins.shape[0] > 1 else 0, 1)
    if said < 1:
        raise ValueError(f"max_seqlen_{name}: is {said}, expected a whole number above 0")
    batches = begins.shape[0] - 1
    if not torch.compiler.is_compiling() and said * batches < rows:
        expected = f"the longest length of {batches} sequences, which have {rows} rows together"
        raise ValueError(f"max_seqlen_{name}: is {said}, expected {expected}")
    return said


def packed(
    q: Tensor, k: Tensor, v: Tensor, begins: tuple[Tensor, Tensor | None], longest: tuple[int | None, int | None],
    is_causal: bool, scale: float | None, enable_gqa: bool, *, window: int | None, softcap: float | None,
    alibi_slopes: Tensor | None, align: str, dropout_p: float, seed: Any,
) -> Tensor:  # fmt: skip
    """attention over packed sequences."""
    check_variants(window, softcap, align)
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p: is {dropout_p}, expected a number from 0 to below 1")
    q, k, v = autocast.cast(q, k, v)
    floats(q=q, k=k, v=v)
    for name, t in (("q", q), ("k", k), ("v", v)):
        dims(name, t, 3)
    (h, d), hkv = q.shape[1:], k.shape[1]
    if k.shape[2] != d or d == 0:
        raise ValueError(f"k: has shape {list(k.shape)}, expected the last size of q's {list(q.shape)}, above 0")
    if v.shape[:2] != k.shape[:2]:
        raise ValueError(f"v: has shape {list(v.shape)}, expected the rows and heads of k's {list(k.shape)}")
    if h != hkv and not (enable_gqa and hkv > 0 and h % hkv == 0):
        remedy = f"a divisor of q's {h}" if enable_gqa else f"{h} as q has; or say enable_gqa=True"
        raise ValueError(f"k: has {hkv} heads, expected {remedy}")
    own = whole_numbers("cu_seqlens_q", begins[0], q, (-1,), "one dimension: a number for each sequence and one more")
    assert own is not None
    same = begins[1] is None or begins[1] is begins[0]
    if same and k.shape[0] != q.shape[0]:
        own_rows, rows = q.shape[0], k.shape[0]
        raise ValueError(f"cu_seqlens_k: is cu_seqlens_q, expected offsets of k's {rows} rows: q has {own_rows}")
    of_k = "as many numbers as cu_seqlens_q"
    met = own if same else whole_numbers("cu_seqlens_k", begins[1], q, (own.shape[0],), of_k)
    assert met is not None
    long_q = _longest("q", longest[0], own, q.shape[0])
    long_k = long_q if same and longest[1] is None else _longest("k", longest[1], met, k.shape[0])
    if alibi_slopes is not None and tuple(alibi_slopes.shape) != (h,):
        result = list(alibi_slopes.shape)
        raise ValueError(f"alibi_slopes: has shape {result}, expected one number for each of {h} heads")
    slopes = None if alibi_slopes is None else alibi_slopes.detach().to(q.device, torch.float32).contiguous()
    # Where sequences have as many queries as keys both corners are one; said so, more kernels may race.
    bottom = align == "bottom_right" or (same and long_q == long_k)
    bottom = bottom and (is_causal or window is not None or slopes is not None)
    factor = float(scale) if scale is not None else d**-0.5
    facts = Facts(bool(is_causal), factor, window or 0, float(softcap or 0.0), bottom)
    words = None
    if dropout_p:
        facts, words = facts._replace(dropout=float(dropout_p)), dropping.drawn(seed, q.device)
    if alibi_slopes is not None and alibi_slopes.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("alibi_slopes: requires a gradient, which packed sequences have none of; detach() it")
    out: Tensor = PACKED.call(q, k, v, slopes, words, own, met, long_q, long_k, *facts[:6])[0]
    return out
