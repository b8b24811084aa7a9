"""From an operator and its arguments to the problem's text, and where it is to be solved."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from .. import _warplap
from ..operator import tensor_kind
from ..ops import gated_linear_problem, gated_problem, norm_linear_problem, rope_problem, row_problems
from ..ops.norm import problem as norm_problem


class Asked(NamedTuple):
    """A problem, and the GPU it is on (None for the CPU)."""

    text: str
    gpu: int | None = None


def asked(op: str | Callable[..., Any], *args: Any, device: str | None = None, **kwargs: Any) -> Asked:
    """What a user asks about: a problem's text, or an operator with its arguments."""
    if isinstance(op, str) and ":" in op:
        return Asked(_warplap.read_problem(op), _ordinal(device))
    tensors = [t for t in (*args, *kwargs.values()) if getattr(t, "is_cuda", False)]
    if not tensors:
        return Asked(problem_of(op, *args, **kwargs), _ordinal(device))
    return Asked(problem_of(op, *args, **kwargs), tensors[0].device.index or 0)


def _ordinal(device: str | None) -> int | None:
    if device is None or device == "cpu":
        return None
    kind, _, number = str(device).partition(":")
    if kind != "cuda" or not (number or "0").isdigit():
        raise ValueError(f"device: is {device!r}, expected cpu, cuda or cuda:N")
    return int(number or 0)


def problem_of(op: str | Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The problem that a call of an operator is, in its one text form."""
    name = op if isinstance(op, str) else getattr(op, "__name__", "")
    try:
        text = _LAYERS.get(name) or _TEXTS[_warplap.read_operation(name)]
    except (ValueError, KeyError):
        known = "matmul, linear, gated_linear, norm_linear, gated, attention, bsr_matmul, norm, softmax, cross_entropy, rope,"
        known += " scaled_mm or int_mm"
        raise ValueError(f"op: is {name or op!r}, expected {known}") from None
    return text(*args, **kwargs)


def _gemm(a: Any, b: Any, out: Any = None) -> str:
    if b.ndim > 2:
        raise ValueError(f"b: has {b.ndim} dimensions, expected 1 or 2 (a problem of a batch has batch= in its text)")
    a = a.reshape(-1, a.shape[-1]) if a.ndim != 2 else a
    return _warplap.matmul_problem(a, b.reshape(-1, 1) if b.ndim == 1 else b, out)


def _linear(
    x: Any, w: Any, bias: Any = None, activation: str | None = None, *,
    residual: Any = None, times: Any = None, out: Any = None,
) -> str:  # fmt: skip
    flat = lambda t: t if t is None or t.ndim == 2 else t.reshape(-1, t.shape[-1])
    out = out if out is not None and out.ndim == 2 else None
    return _warplap.linear_problem(flat(x), w, bias, activation, out, flat(residual), flat(times))


def _attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    *,
    mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dropout_p: float = 0.0,
    out: Any = None,
    tiles: Any = None,
    **bends: Any,
) -> str:
    mask = attn_mask if mask is None else mask
    if bends:  # windows, lengths, pages, packed sequences: the call itself says what it would solve
        from ..ops import signatures
        from ..ops.attention import training

        usual = {"scale": scale, "enable_gqa": enable_gqa, "dropout_p": dropout_p, "out": out, "tiles": tiles}
        said = training.problem_of(lambda: signatures.attention(q, k, v, mask, is_causal=is_causal, **usual, **bends))
        if said is None:
            raise NotImplementedError(f"attention: no problem says {', '.join(bends)} of these tensors; torch's answers")
        return said
    q, k, v = (t[(None,) * (4 - t.ndim)] if t.ndim <= 4 else t.flatten(0, t.ndim - 4) for t in (q, k, v))
    if tensor_kind.is_torch(q=q, mask=mask) and (mask is not None or dropout_p or tiles is not None):
        from ..ops.attention import block_mask, variants

        if mask is not None:
            mask = tensor_kind.torch_ops.spread_mask(mask, q, (q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
        factor = q.shape[3] ** -0.5 if scale is None else float(scale)
        facts = variants.Facts(is_causal, factor, 0, 0.0, False, float(dropout_p))
        if tiles is not None:
            mask, facts = block_mask.checked(tiles, mask, q, k), facts._replace(tile=tiles.side, live=tiles.live)
        return variants.problem(q, k, v, mask, None, facts)
    return _warplap.attention_problem(q, k, v, mask, is_causal, scale)


def _bsr(a: Any, b: Any, out: Any = None) -> str:
    b = b.reshape(-1, 1) if b.ndim == 1 else b
    if hasattr(a, "crow_indices"):
        return _warplap.bsr_problem(a.crow_indices(), a.col_indices(), a.values(), a.shape[0], a.shape[1], b)
    if not hasattr(a, "indptr"):
        raise TypeError(
            f"a: expected a torch tensor of layout sparse_bsr or a SciPy bsr_array, found {type(a).__name__}"
        )
    return _warplap.bsr_problem(a.indptr, a.indices, a.data, a.shape[0], a.shape[1], b)


def _qgemm(*args: Any, **kwargs: Any) -> str:
    from ..ops import quantized

    return quantized.problem(*args, **kwargs)


# Layers: products by the name of the operator.
_LAYERS: dict[str, Callable[..., str]] = {"linear": _linear, "gated_linear": gated_linear_problem.problem, "norm_linear": norm_linear_problem.problem}

# The others by the operation that they are.
_TEXTS: dict[str, Callable[..., str]] = {
    "gemm": _gemm, "attention": _attention, "bsr": _bsr, "norm": norm_problem.problem, "qgemm": _qgemm,
    "softmax": row_problems.softmax_problem, "cross_entropy": row_problems.entropy_problem, "rope": rope_problem.problem,
    "gated": gated_problem.problem,
}  # fmt: skip
