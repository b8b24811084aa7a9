"""``warplap.cross_entropy``: the loss of rows of logits, and the gradient along with it."""

from __future__ import annotations

import math
from typing import Any, Literal

from ... import _warplap
from ...arrays import numpy as arrays
from ...operator.call.call_cache import prepared_call
from ...operator.call.direct import REFUSALS
from ...operator.call.eager import PLAIN, is_compiling, is_plain, is_watched, refuse_second_derivative
from ...operator.call.fallback import are_torchs, kernel_or_torch, log_fallback
from ...operator.candidate import Candidate
from ...operator.checks import NAMES, are_raced, floats, is_double, is_raced
from ...operator.declare import Operator
from ...operator.layout import kernel_input, rows
from ...operator.optional_torch import F, Tensor, torch
from ...operator.problem_text import dtype_name, fields, text
from ...operator.public import Public, compiling

Reduction = Literal["mean", "sum", "none"]
_REDUCTIONS = ("mean", "sum", "none")
_LABELS = {"int64": "i64", "int32": "i32"}


# The problem.


@prepared_call
def call_of(
    count: int, n: int, dtype: Any, labels: Any, grad: bool, kept: bool, mean: bool, ignore: int, smoothing: float,
    zloss: float,
) -> str:  # fmt: skip
    """So many rows. The gradient takes the logits' place, unless they are kept."""
    types = {"dtype": dtype_name(dtype, "logits"), "labels": dtype_name(labels, "labels", _LABELS)}
    numbers = {"ignore": ignore, "smoothing": smoothing, "zloss": zloss}
    reduction = "mean" if mean else "sum"
    return text("cross_entropy", rows=count, n=n, **types, grad=grad, kept=kept, reduction=reduction, **numbers)


def check(logits: Any, labels: Any, smoothing: float, zloss: float, reduction: str) -> None:
    """Whether shapes belong together, and the rest is what there is."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction: is {reduction!r}, expected 'mean', 'sum' or 'none'")
    for name, value in (("label_smoothing", smoothing), ("z_loss", zloss)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}: is {value}, expected a number from 0 to 1")
    if logits.ndim == 0:
        raise ValueError("logits: has 0 dimensions, expected 1 or more")
    if tuple(labels.shape) != tuple(logits.shape[:-1]):
        raise ValueError(f"labels: has shape {list(labels.shape)}, expected {list(logits.shape[:-1])}")


def check_labels(labels: Tensor, **beside: Tensor) -> None:
    """Whether labels are whole numbers, where the other one is."""
    ((name, other),) = beside.items()
    if labels.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"labels: holds {labels.dtype}, expected int64 or int32")
    if labels.device != other.device:
        raise ValueError(f"labels: is on {labels.device}, expected {other.device} like {name}")


def _problem(
    logits: Any, labels: Any, ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0,
    reduction: Reduction = "mean", inplace: bool = False,
) -> str:  # fmt: skip
    check(logits, labels, label_smoothing, z_loss, reduction)
    grad = bool(getattr(logits, "requires_grad", False))
    kept = grad and not (inplace and not logits.is_leaf)
    numbers = int(ignore_index), float(label_smoothing), float(z_loss)
    count, n = math.prod(logits.shape[:-1]), logits.shape[-1]
    return call_of(count, n, logits.dtype, labels.dtype, grad, kept, reduction == "mean", *numbers).problem


# Over arrays.


def _of_arrays(
    logits: Any, labels: Any, ignore: int, smoothing: float, zloss: float, reduction: Reduction, inplace: bool
) -> Any:
    np = arrays.numpy()
    logits, labels = arrays.array(logits, "logits"), arrays.array(labels, "labels")
    check(logits, labels, smoothing, zloss, reduction)
    count, n = labels.size, logits.shape[-1]
    loss, lse, total = (np.empty(size, np.float32) for size in (count, count, 1))
    if not logits.size:
        total[...] = 0.0 if reduction == "sum" else np.nan
    else:
        numbers = ignore, smoothing, zloss
        call = call_of(count, n, logits.dtype, labels.dtype, False, False, reduction == "mean", *numbers)
        call(np.ascontiguousarray(logits).reshape(count, n), np.ascontiguousarray(labels).reshape(-1), loss, lse, total)
    return loss.reshape(labels.shape) if reduction == "none" else total[0]


# By torch's own operators, which race too.


def by_torch(
    logits: Tensor, labels: Tensor, gradient: Tensor | None = None, *, ignore: int, smoothing: float, zloss: float,
    mean: bool, grad: bool,
) -> Any:  # fmt: skip
    """What torch's own call does, fused as torch has it fused: a log-softmax out of the logits' type, and for the
    gradient, which takes the logits' place where it has none of its own, a softmax in it. That is a formula: inside of
    an operator torch keeps no graph."""
    to = logits if gradient is None else gradient
    x, labels, n = logits.detach(), labels.long(), logits.shape[-1]
    counts = labels != ignore
    # A label that is no column would stop the program on a GPU: its loss is NaN, as kernels have it.
    stray = counts & ((labels < 0) | (labels >= n))
    hit = torch.where(stray | ~counts, 0, labels)[:, None]
    logs = torch.log_softmax(x, -1, dtype=torch.float32)
    at_hit = logs.gather(1, hit)[:, 0]
    top, place = x.max(-1, keepdim=True)  # at a column that is not hidden, if there is one
    lse = (top.float() - logs.gather(1, place))[:, 0]
    loss = -at_hit if not smoothing else (smoothing - 1.0) * at_hit - smoothing * logs.mean(-1)
    loss = loss.masked_fill(~counts, 0.0).masked_fill_(stray, math.nan)
    if zloss:
        loss = loss + zloss * lse.square() * counts
    share = 1.0 / counts.sum() if mean else torch.ones((), device=x.device)
    if grad:
        by = (1.0 + 2.0 * zloss * lse) * counts * share
        label = (at_hit.exp() * by + (smoothing * (1.0 - 1.0 / n) - 1.0) * counts * share)[:, None]
        if zloss or smoothing or logs.dtype == logits.dtype:
            slope = logs.exp_().mul_(by[:, None])
            slope = slope.sub_((smoothing / n * share * counts)[:, None]) if smoothing else slope
            to.copy_(slope)
        else:
            del logs  # as large again as the logits, or twice
            torch.softmax(x, -1, out=to).mul_(by[:, None] if mean else counts[:, None])
        to.scatter_(1, hit, torch.where(counts[:, None], label, 0.0).to(logits.dtype))
    return loss, lse, (loss.sum() * share).reshape(1)


def into(
    logits: Tensor, labels: Tensor, loss: Tensor, lse: Tensor, total: Tensor, gradient: Tensor | None = None,
    **facts: Any,
) -> None:
    """The same into memory that is there already."""
    for to, result in zip((loss, lse, total), by_torch(logits, labels, gradient, **facts)):
        to.copy_(result)


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    said = fields(problem)
    return {
        "ignore": int(said.get("ignore", -100)),
        "smoothing": float(said.get("smoothing", 0.0)),
        "zloss": float(said.get("zloss", 0.0)),
        "mean": said.get("reduction", "mean") == "mean",
        "grad": said.get("grad") == "true",
    }


CANDIDATES = [Candidate("cross_entropy", "torch_cross_entropy", into, facts=facts)]


# Over torch's tensors.


def run(
    logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, mean: bool, grad: bool,
    gradient: Tensor | None = None,
) -> Any:  # fmt: skip
    """Losses, log-sum-exps and their total by whoever is fastest here and right; with ``grad`` the logits, rows of
    them, become the gradient, unless there is memory of its own for that."""

    def by_kernel() -> Any:
        numbers, kept = (ignore, smoothing, zloss), gradient is not None
        call = call_of(*logits.shape, logits.dtype, labels.dtype, grad, kept, mean, *numbers)
        result = tuple(logits.new_empty(size, dtype=torch.float32) for size in (len(labels), len(labels), 1))
        call(logits, kernel_input(labels), *result, *(() if gradient is None else (gradient,)))
        return result

    numbers: Any = {"ignore": ignore, "smoothing": smoothing, "zloss": zloss, "mean": mean, "grad": grad}
    expressed = is_raced(logits) and labels.dtype in (torch.int64, torch.int32)
    return kernel_or_torch(by_kernel, lambda: by_torch(logits, labels, gradient, **numbers), expressed)


def _run(logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, mean: bool) -> Any:
    loss, lse, total = run(kernel_input(rows(logits)), labels.reshape(-1), ignore, smoothing, zloss, mean, False)
    return loss.view(labels.shape), lse.view(labels.shape), total.reshape(())


def _run_trained(logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, mean: bool) -> Any:
    flat = kernel_input(rows(logits))
    own = torch.empty_like(flat)
    loss, lse, total = run(flat, labels.reshape(-1), ignore, smoothing, zloss, mean, True, own)
    return loss.view(labels.shape), lse.view(labels.shape), total.reshape(()), own.view(logits.shape)


def _shapes(logits: Tensor, labels: Tensor, *numbers: Any) -> Any:
    make = lambda shape: logits.new_empty(shape, dtype=torch.float32)
    return make(labels.shape), make(labels.shape), make(())


def _shapes_trained(logits: Tensor, labels: Tensor, *numbers: Any) -> Any:
    return *_shapes(logits, labels), logits.new_empty(logits.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[3])
    ctx.mark_non_differentiable(output[1], output[3])
    ctx.set_materialize_grads(False)  # or torch makes zeros as large as the logits for an output that nobody sees
    ctx.mean = inputs[5]


def _backward(ctx: Any, of_loss: Tensor | None, of_lse: None, of_total: Tensor | None, of_own: None) -> Any:
    (own,) = ctx.saved_tensors
    refuse_second_derivative("cross_entropy", own)
    # The caller took the total, or, of a sum, the losses of the rows.
    arguments = [g for g in (of_total, None if ctx.mean or of_loss is None else of_loss[..., None]) if g is not None]
    if not arguments:
        return (None,) * 6
    by = arguments[0] if len(arguments) == 1 else arguments[0] + arguments[1]
    return _times(own, by), None, None, None, None, None


def _times(own: Tensor, by: Tensor) -> Tensor:
    """A gradient that was kept, times what comes from behind: in its own place where nobody asks for it again."""
    many = torch._C._functorch.is_legacy_batchedtensor(by)  # many gradients at once (``is_grads_batched``)
    if many or is_compiling() or type(own) not in PLAIN or is_watched() or _is_asked_again():
        return own * by.to(own.dtype)
    by = by.detach()
    if by.numel() > 1:
        return own.mul_(by)
    # On a host it costs nothing to see that there is nothing to do; a GPU looks for itself.
    done = (own.is_cuda and _times_on_gpu(own, by)) or (own.is_cpu and float(by) == 1.0)
    return (own if done else own.mul_(by)).detach()  # one that is not ours any more is taken without a copy


def _times_on_gpu(t: Tensor, by: Tensor) -> bool:
    """Multiplies a tensor without gaps in its own place with a tensor of one number, by a kernel that leaves it alone
    where that is one; whether it did."""
    if t.dtype not in NAMES or not t.is_contiguous() or not by.is_cuda or by.device != t.device:
        return False
    by = by.float()
    try:
        _warplap.times(t.data_ptr(), NAMES[t.dtype], t.numel(), by.data_ptr(), t.device.index or 0)
    except NotImplementedError as why:
        log_fallback("torch", why)
        return False
    return True


_numbers = "int ignore, float smoothing, float zloss, bool mean"
_inputs = f"Tensor logits, Tensor labels, {_numbers}"
ENTROPY = Operator(f"cross_entropy({_inputs}) -> (Tensor, Tensor, Tensor)", _run, _shapes)
TRAINED = Operator(
    f"cross_entropy_trained({_inputs}) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_trained, _shapes_trained, save=_save, backward=_backward,
)  # fmt: skip


def _direct(logits: Any, labels: Any, *numbers: Any) -> Any:
    """Losses, log-sum-exps and their total at once, over plain tensors of which nobody wants a gradient; None for
    everything else."""
    if type(logits) not in PLAIN:
        return None
    try:
        count, n = logits.shape
        call = call_of(count, n, logits.dtype, labels.dtype, False, False, *numbers)
    except REFUSALS:
        return None
    return call.direct(logits, labels)


if torch is not None:
    # Whether the backward pass that runs leaves its graph for another one (``retain_graph``).
    _is_asked_again = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)

    class _InPlace(torch.autograd.Function):
        """The gradient in the logits' own memory."""

        @staticmethod
        def forward(ctx: Any, logits: Tensor, labels: Tensor, *numbers: Any) -> Any:
            own = rows(logits)
            ignore, smoothing, zloss, ctx.mean = numbers
            loss, _, total = run(own, labels.reshape(-1), ignore, smoothing, zloss, ctx.mean, True)
            ctx.save_for_backward(own.view(logits.shape))
            return loss.view(labels.shape), total.reshape(())

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, of_loss: Tensor, of_total: Tensor) -> tuple[Any, ...]:
            (own,) = ctx.saved_tensors
            by = of_total if ctx.mean else of_total + of_loss[..., None]
            return _times(own, by), None, None, None, None, None


def _is_torchs(logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, mean: bool) -> bool:
    """Whether nothing is decided about a step, and torch's own call stands in for it."""
    n = logits.shape[-1]
    if not is_plain(logits) or not are_raced(logits.numel() // n, n) or labels.dtype not in (torch.int64, torch.int32):
        return False
    numbers = mean, ignore, smoothing, zloss
    return are_torchs(logits, call_of(logits.numel() // n, n, logits.dtype, labels.dtype, True, True, *numbers))


def _by_torch_itself(logits: Tensor, labels: Tensor, ignore: int, smoothing: float, reduction: str) -> Tensor:
    """torch's own call with its own gradient; a label that is no column makes NaN, as everywhere here."""
    flat = labels.reshape(-1).long()
    stray = (flat != ignore) & ((flat < 0) | (flat >= logits.shape[-1]))
    known = flat.masked_fill(stray, ignore)
    loss = F.cross_entropy(
        rows(logits), known, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction
    ).float()  # fmt: skip
    if reduction == "none":
        return loss.masked_fill(stray, math.nan).view(labels.shape)
    return loss.masked_fill(stray.any(), math.nan)


def of_tensors(
    logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, reduction: str, inplace: bool
) -> Tensor:
    check(logits, labels, smoothing, zloss, reduction)
    check_labels(labels, logits=logits)
    wanted = torch.is_grad_enabled() and logits.requires_grad
    mean = reduction == "mean"
    if is_double(logits) or logits.numel() == 0:
        loss = F.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).long(),
            ignore_index=ignore, label_smoothing=smoothing, reduction="none",
        ).view(labels.shape)  # fmt: skip
        loss = loss + zloss * torch.logsumexp(logits, -1).square() * (labels != ignore)
        total = loss.sum() / (labels != ignore).sum() if mean else loss.sum()
        return loss if reduction == "none" else total
    floats(logits=logits)
    numbers = ignore, smoothing, zloss, mean
    if not wanted:
        loss, _, total = ENTROPY.call(logits, labels, *numbers)
    elif zloss == 0.0 and _is_torchs(logits, labels, *numbers):
        return _by_torch_itself(logits, labels, ignore, smoothing, reduction)
    elif inplace and logits.is_contiguous() and not logits.is_leaf and not is_watched() and not is_compiling():
        loss, total = _InPlace.apply(logits, labels, *numbers)
    else:
        loss, _, total, _ = TRAINED.call(logits, labels, *numbers)
    return loss if reduction == "none" else total


_public = Public(torch=of_tensors, arrays=_of_arrays, problem=_problem)


@_public
def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: Reduction = "mean",
    inplace: bool = False,
) -> Any:
    """Cross entropy of rows of logits along the last dimension, as ``torch.nn.functional.cross_entropy`` computes it of
    float32, plus ``z_loss`` times the squared log-sum-exp of each row.

    ``labels`` (int64 or int32) has the shape of ``logits`` but for the last dimension. Rows whose label is
    ``ignore_index`` do not count; a label that is no column makes the loss NaN. The loss is float32: the mean of the
    rows that count, their sum, or with ``reduction="none"`` one for each row. Where logits require a gradient it is
    computed along with the loss; with ``inplace`` in the memory of the logits, which nobody may read after that.
    """
    numbers = int(ignore_index), float(label_smoothing), float(z_loss)
    if reduction in _REDUCTIONS and not compiling():
        result = _direct(logits, labels, reduction == "mean", *numbers)
        if result is not None:
            return result[0] if reduction == "none" else result[2].view(())
    ignore, smoothing, zloss = numbers
    return _public.of(
        {"logits": logits, "labels": labels},
        ignore=ignore, smoothing=smoothing, zloss=zloss, reduction=reduction, inplace=inplace,
    )  # fmt: skip
