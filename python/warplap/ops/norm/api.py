"""``warplap.norm``: what users call."""

from __future__ import annotations

from typing import Any

from ...operator.public import Public, compiling
from . import prologue, quantized
from .dense import direct, norm as of_tensors
from .problem import Kind, Quant, of_arrays, problem


def _of_tensors(
    x: Any, weight: Any, bias: Any, residual: Any, before: Any, kind: str, eps: float, dropout: float, seed: Any,
    quant: Quant | None,
) -> Any:  # fmt: skip
    if quant is not None:
        return quantized.norm(x, residual, weight, bias, kind, eps, before, dropout, seed, quant)
    if before is not None or dropout:
        return prologue.norm(x, residual, weight, bias, kind, eps, before, dropout, seed)
    return of_tensors(x, residual, weight, bias, kind, eps)


def _of_arrays(
    x: Any, weight: Any, bias: Any, residual: Any, before: Any, kind: str, eps: float, dropout: float, seed: Any,
    quant: Quant | None,
) -> Any:  # fmt: skip
    if before is not None or dropout or quant is not None:
        raise TypeError(f"x: is a {type(x).__name__}, expected a torch tensor where before, dropout or quant is given")
    return of_arrays(x, residual, weight, bias, kind, eps)


_public = Public(
    torch=_of_tensors, arrays=_of_arrays, problem=problem, optional=("weight", "bias", "residual", "before")
)


@_public
def norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    residual: Any = None,
    kind: Kind = "rms",
    eps: float = 1e-5,
    before: Any = None,
    dropout: float = 0.0,
    seed: Any = None,
    quant: Quant | None = None,
) -> Any:
    """``norm(x + residual) * weight + bias`` over the last dimension: RMSNorm (``kind="rms"``) or LayerNorm
    (``kind="layer"``), as ``torch.nn.functional.rms_norm`` and ``layer_norm`` compute them.

    ``residual`` has the shape of ``x``, ``weight`` and ``bias`` have that of its last dimension. With a residual the
    sum comes beside the norm: ``y, total = norm(x, w, residual=r)``. float32, float16 or bfloat16, with arithmetic in
    float32. torch in, torch out (differentiable in all of them); NumPy in, NumPy out.

    torch only: ``before`` is added to every row of ``x`` first, then a share ``dropout`` of its elements is dropped and
    the others grow, then the residual is added; the sum comes beside the norm then too. Which elements are dropped
    follows from their places and ``seed``: a number, a pair of numbers (seed and stream), two int64 beside ``x``, or
    None to have torch draw one. The same seed drops the same elements in every kernel and on every device.

    With ``quant="fp8"`` (float8_e4m3fn) or ``"int8"`` the norm is written as 8-bit numbers with one float32 factor a
    row, its largest magnitude over 448 or 127: ``codes, scale = norm(x, w, quant="fp8")``, and the sum behind them
    where there is one. ``codes * scale`` is the norm; ``scale`` has a last dimension of 1, as ``scaled_mm`` takes it.
    torch only, without gradients.
    """
    if not compiling() and quant is None and before is None and not dropout:
        result = direct(x, residual, weight, bias, kind, eps)
        if result is not None:
            return result
    return _public.of(
        {"x": x, "weight": weight, "bias": bias, "residual": residual, "before": before},
        kind=kind, eps=float(eps), dropout=float(dropout), seed=seed, quant=quant,
    )  # fmt: skip
