"""Cross entropy joined with the projection in front of it: rows come in chunks, and logits are never whole in
memory."""

from __future__ import annotations

from typing import Any, Sequence

from ...operator import autocast
from ...operator.call.eager import refuse_second_derivative
from ...operator.checks import floats, has_kernels, wants
from ...operator.declare import Operator
from ...operator.layout import rows
from ...operator.optional_torch import F, Tensor, torch
from ...operator.public import Public
from ..products import linear
from ..products.matmul import product
from . import cross_entropy as entropy
from .cross_entropy import Reduction

# Logits that there are at once where nobody says how many rows a chunk has, and what its rows are a multiple of.
_MOST, _EVEN = 1 << 28, 128

# Chunks whose sums may be in a half type.
_FEW = 4

# cuBLAS can add to float32 what it multiplies in half types, where this torch lets it.
_add_to_float = None if torch is None else getattr(torch.ops.aten.addmm, "dtype_out", None)


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
        logits = linear.finished_run(x[part], w, bias)
        loss[part] = entropy.run(logits, labels[part], ignore, smoothing, zloss, False, any(wanted))[0]
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


def _shapes(x: Tensor, w: Tensor, wanted: Sequence[bool]) -> tuple[Tensor, ...]:
    shapes: list[Any] = [x.shape, w.shape, w.shape[:1]]
    return tuple(x.new_empty(shape if want else (0,)) for shape, want in zip(shapes, wanted))


def _values_shape(x: Tensor, *arguments: Any) -> Tensor:
    return x.new_empty(x.shape[0], dtype=torch.float32)


def _trained_shapes(x: Tensor, w: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return x.new_empty((), dtype=torch.float32), *_shapes(x, w, arguments[-1])


def _gradients_shapes(x: Tensor, w: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return _shapes(x, w, arguments[-1])


def _save_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # or torch makes zeros as large as the weight for outputs that nobody sees
    ctx.wanted = inputs[-1]


def _scale(ctx: Any, of_total: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    """Gradients were computed with the loss."""
    number = of_total.reshape(1)
    refuse_second_derivative("linear_cross_entropy", number)
    # In float32, and in a plain program without a third tensor in memory.
    plain = type(number) is Tensor and not torch.compiler.is_compiling()
    scaled = lambda t: torch.mul(t, number, out=torch.empty_like(t)) if plain else (t * number).to(t.dtype)
    result = [scaled(t) if want else None for t, want in zip(ctx.saved_tensors, ctx.wanted)]
    return *result, *(None,) * 7


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.numbers = inputs[4:]


def _again(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:
    """Where every row has a number of its own nothing can be computed ahead: logits are computed once more."""
    refuse_second_derivative("linear_cross_entropy", by)
    wanted = list(ctx.needs_input_grad[:3])
    result = GRADIENTS.dispatched(*ctx.saved_tensors, *ctx.numbers, by.contiguous(), wanted)
    return *(t if want else None for t, want in zip(result, wanted)), *(None,) * 5


_inputs = "Tensor x, Tensor w, Tensor? bias, Tensor labels, int ignore, float smoothing, float zloss, int chunk"
LOSSES = Operator(
    f"linear_cross_entropy({_inputs}) -> Tensor", _values, _values_shape, save=_save_inputs, backward=_again
)
TRAINED = Operator(
    f"linear_cross_entropy_trained({_inputs}, bool mean, bool[3] wants) -> (Tensor, Tensor, Tensor, Tensor)",
    _trained, _trained_shapes, save=_save_gradients, backward=_scale,
)  # fmt: skip
GRADIENTS = Operator(
    f"linear_cross_entropy_grad({_inputs}, Tensor by, bool[3] wants) -> (Tensor, Tensor, Tensor)",
    _gradients, _gradients_shapes,
)  # fmt: skip


def _problem(
    x: Any, w: Any, labels: Any, bias: Any = None, ignore_index: int = -100, label_smoothing: float = 0.0,
    z_loss: float = 0.0, reduction: Reduction = "mean", chunk: int | None = None,
) -> str:  # fmt: skip
    """That of a chunk's logits: what is raced of it."""
    linear.check(x, w, bias)
    entropy.check(x, labels, label_smoothing, z_loss, reduction)
    each = min(_rows_at_once(labels.numel(), w.shape[0], chunk or 0), labels.numel())
    return linear.problem(rows(x)[:each], w, bias)


def _of_tensors(
    x: Tensor, w: Tensor, labels: Tensor, bias: Tensor | None,
    ignore: int, smoothing: float, zloss: float, reduction: str, chunk: int | None,
) -> Tensor:  # fmt: skip
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk: is {chunk}, expected 1 row or more")
    x, w, bias = autocast.cast(x, w, bias)
    ours = has_kernels(x, w, bias)
    if ours:
        floats(x=x, w=w, bias=bias)
    linear.check(x, w, bias)
    entropy.check(x, labels, smoothing, zloss, reduction)
    entropy.check_labels(labels, x=x)
    if not ours or 0 in (*x.shape, *w.shape):
        return entropy.of_tensors(F.linear(x, w, bias), labels, ignore, smoothing, zloss, reduction, False)
    arguments = rows(x), w, bias, labels.reshape(-1), ignore, smoothing, zloss, chunk or 0
    if reduction != "none" and wants(x, w, bias):
        wanted = [t is not None and t.requires_grad for t in (x, w, bias)]
        return TRAINED.call(*arguments, reduction == "mean", wanted)[0]  # type: ignore[no-any-return]
    loss: Tensor = LOSSES.call(*arguments)
    if reduction == "none":
        return loss.view(labels.shape)
    return loss.sum() / (labels != ignore).sum() if reduction == "mean" else loss.sum()


_public = Public(torch=_of_tensors, problem=_problem, optional=("bias",))


@_public
def linear_cross_entropy(
    x: Any,
    w: Any,
    labels: Any,
    bias: Any = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: Reduction = "mean",
    chunk: int | None = None,
) -> Any:
    """``cross_entropy(linear(x, w, bias), labels, ...)`` without the logits: torch's x of shape (..., k), w (n, k),
    bias (n,), labels (...).

    Rows are taken ``chunk`` at a time, or as many as have 2**27 logits, and only a chunk's logits are in memory. Where
    gradients are wanted they are computed with the loss, chunk by chunk, and sums over chunks are in float32; backward
    multiplies them with the gradient of the loss. With ``reduction="none"`` backward computes logits once more.
    """
    return _public.of(
        {"x": x, "w": w, "labels": labels, "bias": bias},
        ignore=int(ignore_index), smoothing=float(label_smoothing), zloss=float(z_loss), reduction=reduction,
        chunk=chunk,
    )  # fmt: skip
