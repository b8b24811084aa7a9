"""Cross entropy joined with the projection in front of it: rows come in chunks, and logits are never whole in memory."""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..operator.torch_fallback import cast, has_kernels
from ..operator.compile import compiled, fake
from .linear import check, finished_run
from ..operator.library import floats, lib, op, rows, wants
from ..operator.eager import operator
from .matmul import product
from .row_problems import check_entropy
from .softmax import check_labels, cross_entropy, entropy_run, refuse_second

_tags = (torch.Tag.pt2_compliant_tag,)
_given = "Tensor x, Tensor w, Tensor? bias, Tensor labels, int ignore, float smoothing, float zloss, int chunk"
for _schema in (
    f"linear_cross_entropy({_given}) -> Tensor",
    f"linear_cross_entropy_trained({_given}, bool mean, bool[3] wants) -> (Tensor, Tensor, Tensor, Tensor)",
    f"linear_cross_entropy_grad({_given}, Tensor by, bool[3] wants) -> (Tensor, Tensor, Tensor)",
):
    lib.define(_schema, tags=_tags)

# Logits that there are at once where nobody says how many rows a chunk has, and what its rows are a multiple of.
_MOST, _EVEN = 1 << 28, 128

# Chunks whose sums may be in a half type.
_FEW = 4

# cuBLAS can add to float32 what it multiplies in half types, where this torch lets it.
_add_to_float = getattr(torch.ops.aten.addmm, "dtype_out", None)


def _rows_at_once(count: int, n: int, chunk: int) -> int:
    """Rows of a chunk: as many as are asked for, or chunks of one size that hold a bounded number of logits."""
    if chunk:
        return chunk
    chunks = -(-count // max(1, _MOST // n))
    return -(-count // (chunks * _EVEN)) * _EVEN


def _sums(w: Tensor, chunks: int) -> torch.dtype:
    """In which type the gradient of a weight is summed over chunks. Each rounds it once more, unless that is float32:
    twice as many bytes, read and written by every chunk. bfloat16 has float32's range, and a few roundings are no more
    than what the gradients of the logits were rounded by."""
    return w.dtype if w.is_cuda and w.dtype == torch.bfloat16 and chunks <= _FEW else torch.float32


def _add_product(to: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """Adds a product to sums over all chunks."""
    if to.dtype == a.dtype and to.is_cuda:
        torch.addmm(to, a, b, beta=0 if first else 1, out=to)
    elif to.is_cuda and a.dtype != torch.float32 and _add_to_float is not None:
        _add_to_float(to, a, b, torch.float32, beta=0 if first else 1, out=to)
    elif first:
        to.copy_(product(a, b))
    else:
        to.add_(product(a, b))


def _walk(
    x: Tensor, w: Tensor, bias: Tensor | None, labels: Tensor, ignore: int, smoothing: float, zloss: float, chunk: int,
    wanted: Sequence[bool] = (False, False, False), share: Tensor | None = None, by: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Losses of rows, and the wanted gradients (of x, w and bias) of their sum times ``share``, with each row's loss
    times its number of ``by``."""
    wide = torch.float32
    loss = x.new_empty(x.shape[0], dtype=wide)
    of_x = x.new_empty(x.shape if wanted[0] else 0)
    each = _rows_at_once(x.shape[0], w.shape[0], chunk)
    of_w = w.new_empty(w.shape if wanted[1] else 0, dtype=_sums(w, -(-x.shape[0] // each)))
    of_bias = w.new_zeros(w.shape[0] if wanted[2] else 0, dtype=wide)
    share = x.new_ones(1, dtype=wide) if share is None else share
    for at in range(0, x.shape[0], each):
        part = slice(at, at + each)
        logits = finished_run(x[part], w, bias)
        loss[part] = entropy_run(logits, labels[part], ignore, smoothing, zloss, False, any(wanted))[0]
        # From here on these are gradients.
        if by is not None:
            logits.mul_(by[part, None])
        if wanted[0]:
            torch.mul(product(logits, w), share, out=of_x[part])
        if wanted[1]:
            _add_product(of_w, logits.t(), x[part], at == 0)
        if wanted[2]:
            of_bias += logits.sum(0, dtype=wide)
        del logits
    into = lambda t: t if x.dtype == t.dtype else torch.empty_like(t, dtype=x.dtype)
    of_w, of_bias = (torch.mul(t, share, out=into(t)) for t in (of_w, of_bias))
    return loss, of_x, of_w, of_bias


def _values(x: Tensor, w: Tensor, bias: Tensor | None, labels: Tensor, *numbers: Any) -> Tensor:
    return _walk(x, w, bias, labels, *numbers)[0]


def _trained(x: Tensor, w: Tensor, bias: Tensor | None, labels: Tensor, *more: Any) -> tuple[Tensor, ...]:
    ignore, smoothing, zloss, chunk, mean, wanted = more
    count = (labels != ignore).sum().reshape(1)
    share = 1.0 / count.clamp(min=1) if mean else None  # where no row counts, all gradients are zero
    loss, *gradients = _walk(x, w, bias, labels, ignore, smoothing, zloss, chunk, wanted, share)
    total = loss.sum()
    return total / count[0] if mean else total, *gradients


def _gradients(x: Tensor, w: Tensor, bias: Tensor | None, labels: Tensor, *more: Any) -> tuple[Tensor, ...]:
    ignore, smoothing, zloss, chunk, by, wanted = more
    return _walk(x, w, bias, labels, ignore, smoothing, zloss, chunk, wanted, None, by)[1:]


for _device in ("CPU", "CUDA"):
    lib.impl("linear_cross_entropy", _values, _device)
    lib.impl("linear_cross_entropy_trained", _trained, _device)
    lib.impl("linear_cross_entropy_grad", _gradients, _device)
compiled("linear_cross_entropy_grad", _gradients)


def _shapes(x: Tensor, w: Tensor, wanted: Sequence[bool]) -> tuple[Tensor, ...]:
    shapes: list[Any] = [x.shape, w.shape, w.shape[:1]]
    return tuple(x.new_empty(shape if want else (0,)) for shape, want in zip(shapes, wanted))


@fake("linear_cross_entropy")
def _values_fake(x: Tensor, *given: Any) -> Tensor:
    return x.new_empty(x.shape[0], dtype=torch.float32)


@fake("linear_cross_entropy_trained")
def _trained_fake(x: Tensor, w: Tensor, *given: Any) -> tuple[Tensor, ...]:
    return x.new_empty((), dtype=torch.float32), *_shapes(x, w, given[-1])


@fake("linear_cross_entropy_grad")
def _gradients_fake(x: Tensor, w: Tensor, *given: Any) -> tuple[Tensor, ...]:
    return _shapes(x, w, given[-1])


def _save_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # or torch makes zeros as large as the weight for outputs that nobody sees
    ctx.wanted = inputs[-1]


def _scale(ctx: Any, of_total: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    """Gradients were computed with the loss."""
    number = of_total.reshape(1)
    refuse_second("linear_cross_entropy", number)
    # In float32, and in a plain program without a third tensor in memory.
    plain = type(number) is Tensor and not torch.compiler.is_compiling()
    scaled = lambda t: torch.mul(t, number, out=torch.empty_like(t)) if plain else (t * number).to(t.dtype)
    found = [scaled(t) if want else None for t, want in zip(ctx.saved_tensors, ctx.wanted)]
    return *found, *(None,) * 7


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.numbers = inputs[4:]


def _again(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:
    """Where every row has a number of its own nothing can be computed ahead: logits are computed once more."""
    refuse_second("linear_cross_entropy", by)
    wanted = list(ctx.needs_input_grad[:3])
    found = op.linear_cross_entropy_grad.default(*ctx.saved_tensors, *ctx.numbers, by.contiguous(), wanted)
    return *(t if want else None for t, want in zip(found, wanted)), *(None,) * 5


_losses = operator("linear_cross_entropy", _values, _save_inputs, _again).call
_total = operator("linear_cross_entropy_trained", _trained, _save_gradients, _scale).call


def linear_cross_entropy(
    x: Tensor, w: Tensor, labels: Tensor, bias: Tensor | None,
    ignore: int, smoothing: float, zloss: float, reduction: str, chunk: int | None,
) -> Tensor:  # fmt: skip
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk: is {chunk}, expected 1 row or more")
    x, w, bias = cast(x, w, bias)
    ours = has_kernels(x, w, bias)
    if ours:
        floats(x=x, w=w, bias=bias)
    check(x, w, bias)
    check_entropy(x, labels, smoothing, zloss, reduction)
    check_labels(labels, x=x)
    if not ours or 0 in (*x.shape, *w.shape):
        return cross_entropy(F.linear(x, w, bias), labels, ignore, smoothing, zloss, reduction, False)
    given = rows(x), w, bias, labels.reshape(-1), ignore, smoothing, zloss, chunk or 0
    if reduction != "none" and wants(x, w, bias):
        wanted = [t is not None and t.requires_grad for t in (x, w, bias)]
        return _total(*given, reduction == "mean", wanted)[0]  # type: ignore[no-any-return]
    loss: Tensor = _losses(*given)
    if reduction == "none":
        return loss.view(labels.shape)
    return loss.sum() / (labels != ignore).sum() if reduction == "mean" else loss.sum()
