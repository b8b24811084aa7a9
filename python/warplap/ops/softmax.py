"""softmax and cross_entropy over torch tensors: operators, shapes under tracing, gradients, and torch's own as
candidates."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..operator import cuda, problem_fields
from ..operator.torch_fallback import are_torchs, is_double
from ..operator.compile import compiled, fake
from ..operator.library import floats, lib, op, ordinary, rows
from ..operator.eager import PLAIN, is_watched, operator
from .row_problems import (
    check_entropy, check_softmax, entropy_call, shared, softmax_call, softmax_direct, softmax_grad_call,
)  # fmt: skip

_tags = (torch.Tag.pt2_compliant_tag,)
_numbers = "int ignore, float smoothing, float zloss, bool mean"
for _schema in (
    "softmax(Tensor x, Tensor? mask, float scale, SymInt each) -> Tensor",
    "softmax_grad(Tensor y, Tensor grad, float scale) -> Tensor",
    f"cross_entropy(Tensor logits, Tensor labels, {_numbers}) -> (Tensor, Tensor, Tensor)",
    f"cross_entropy_trained(Tensor logits, Tensor labels, {_numbers}) -> (Tensor, Tensor, Tensor, Tensor)",
):
    lib.define(_schema, tags=_tags)


def _lent(t: Tensor) -> Tensor:
    """The tensor as kernels take it: without gaps, on addresses that vectors may have."""
    t = t.resolve_neg().contiguous()
    return cuda.aligned(t) if t.is_cuda else t


# Softmax.


def _spread(mask: Tensor, count: int, each: int) -> Tensor:
    """Rows of a mask as so many rows have them."""
    lines, n = mask.shape
    return mask[:, None].expand(lines, each, n).reshape(-1, n).repeat(-(-count // (lines * each)), 1)[:count]


def _is_exact(scale: float) -> bool:
    """Whether a product with it is not rounded: it is a power of two, and no small number is lost."""
    return math.frexp(scale)[0] in (0.5, -0.5) and 2**-4 <= abs(scale) <= 1.0


def softmax_by_torch(x: Tensor, mask: Tensor | None = None, *, scale: float, each: int) -> Tensor:
    """What torch has for it: a product and a sum in one pass, rounded to float32 at the most, then a softmax."""
    if mask is None:
        scores = x if scale == 1.0 else x * scale if _is_exact(scale) else x.float() * scale
        return torch.softmax(scores, -1).to(x.dtype)
    lines, n = mask.shape
    if x.shape[0] % (lines * each) == 0:
        scores = torch.add(mask.float()[:, None], x.view(-1, lines, each, n), alpha=scale).view(x.shape)
    else:
        scores = torch.add(_spread(mask, x.shape[0], each).float(), x, alpha=scale)
    return torch.softmax(scores, -1).to(x.dtype)


def softmax_facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    given = problem_fields.fields(problem)
    return {"scale": float(given.get("scale", 1.0)), "each": int(given.get("each", 1))}


def softmax_grad_by_torch(y: Tensor, grad: Tensor, *, scale: float) -> Tensor:
    """What torch has for it; in float32 where a factor would round what is rounded already."""
    if scale == 1.0 or y.dtype == torch.float32 or _is_exact(scale):
        dx = torch._softmax_backward_data(grad, y, -1, y.dtype)
        return dx if scale == 1.0 else dx * scale
    return (torch._softmax_backward_data(grad.float(), y.float(), -1, torch.float32) * scale).to(y.dtype)


def softmax_grad_facts(problem: str) -> dict[str, Any]:
    return {"scale": softmax_facts(problem)["scale"]}


def _softmax(x: Tensor, mask: Tensor | None, scale: float, each: int) -> Tensor:
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    found = softmax_direct(x, mask, scale, each)
    if found is not None:
        return found  # type: ignore[no-any-return]
    if x.numel() == 0:
        return x.new_empty(x.shape)
    flat, mask = _lent(rows(x)), None if mask is None else _lent(mask)
    if ordinary(flat) and flat.numel() <= 1 << 31:
        try:
            found = softmax_call(flat.shape, x.dtype, scale, 0 if mask is None else mask.shape[0], each)(flat, mask)
        except NotImplementedError as why:
            cuda.tell("torch", why)
    if found is None:
        found = softmax_by_torch(flat, mask, scale=scale, each=each)
    return found.reshape(x.shape)


def _softmax_grad(y: Tensor, grad: Tensor, scale: float) -> Tensor:
    if y.numel() == 0:
        return y.new_empty(y.shape)
    flat, up = _lent(rows(y)), _lent(rows(grad))
    found = None
    if ordinary(flat) and flat.numel() <= 1 << 31:
        try:
            found = softmax_grad_call(flat.shape, y.dtype, scale)(flat, up)
        except NotImplementedError as why:
            cuda.tell("torch", why)
    if found is None:
        found = softmax_grad_by_torch(flat, up, scale=scale)
    return found.reshape(y.shape)


for _device in ("CPU", "CUDA"):
    lib.impl("softmax", _softmax, _device)
    lib.impl("softmax_grad", _softmax_grad, _device)


@fake("softmax")
def _softmax_fake(x: Tensor, mask: Tensor | None, scale: float, each: int) -> Tensor:
    return x.new_empty(x.shape)


@fake("softmax_grad")
def _softmax_grad_fake(y: Tensor, grad: Tensor, scale: float) -> Tensor:
    return y.new_empty(y.shape)


def _save_softmax(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, mask, ctx.scale, ctx.each = inputs
    ctx.lines = None if mask is None else mask.shape[0]
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    dx = _gradient(y, grad, ctx.scale) if ctx.needs_input_grad[0] else None
    dmask = None
    if ctx.lines is not None and ctx.needs_input_grad[1]:
        scores, n = _gradient(y, grad, 1.0).reshape(-1, y.shape[-1]), y.shape[-1]
        whole = ctx.lines * ctx.each
        short = -scores.shape[0] % whole
        scores = F.pad(scores, (0, 0, 0, short)) if short else scores
        dmask = scores.reshape(-1, ctx.lines, ctx.each, n).sum((0, 2), dtype=torch.float32).to(y.dtype)
    return dx, dmask, None, None


def _save_softmax_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    y, grad, ctx.scale = inputs
    ctx.save_for_backward(y, grad)


def _softmax_grad_backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
    y, grad = ctx.saved_tensors
    wide = torch.promote_types(y.dtype, torch.float32)
    y, grad, up = y.to(wide), grad.to(wide), up.to(wide)
    over = (up * y).sum(-1, keepdim=True)
    of_y = ctx.scale * (up * (grad - (grad * y).sum(-1, keepdim=True)) - grad * over)
    of_grad = ctx.scale * y * (up - over)
    return of_y.to(ctx.saved_tensors[0].dtype), of_grad.to(ctx.saved_tensors[0].dtype), None


_softmax_node = operator("softmax", _softmax, _save_softmax, _softmax_backward).call
_gradient = operator("softmax_grad", _softmax_grad, _save_softmax_grad, _softmax_grad_backward).call


def softmax(x: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    check_softmax(x, mask, scale)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=x.dtype, device=mask.device).masked_fill_(~mask, -math.inf)
    if x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type) and mask is not None:
        mask = mask.to(x.dtype)  # arithmetic is in float32 anyway: x decides
    if is_double(x, mask):
        return torch.softmax(x * scale if mask is None else x * scale + mask, -1)
    floats(x=x, mask=mask)
    each = 1
    if mask is not None:
        found = shared(x.shape, mask.shape)
        if found is None:
            mask, found = mask.expand(x.shape), (math.prod(x.shape[:-1]), 1)
        each = found[1]
        mask = mask.reshape(found[0], x.shape[-1])
    return _softmax_node(x, mask, scale, each)


# Cross entropy.


def entropy_by_torch(
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


def entropy_into(
    logits: Tensor, labels: Tensor, loss: Tensor, lse: Tensor, total: Tensor, gradient: Tensor | None = None, **facts: Any
) -> None:
    """The same into memory that is there already."""
    for to, found in zip((loss, lse, total), entropy_by_torch(logits, labels, gradient, **facts)):
        to.copy_(found)


def entropy_facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    given = problem_fields.fields(problem)
    return {
        "ignore": int(given.get("ignore", -100)),
        "smoothing": float(given.get("smoothing", 0.0)),
        "zloss": float(given.get("zloss", 0.0)),
        "mean": given.get("reduction", "mean") == "mean",
        "grad": given.get("grad") == "true",
    }


def entropy_run(
    logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, mean: bool, grad: bool,
    gradient: Tensor | None = None,
) -> Any:  # fmt: skip
    """Losses, log-sum-exps and their total by whoever is fastest here and right; with ``grad`` the logits, rows of
    them, become the gradient, unless there is memory of its own for that."""
    found = None
    if ordinary(logits) and logits.numel() <= 1 << 31 and labels.dtype in (torch.int64, torch.int32):
        numbers = ignore, smoothing, zloss
        try:
            kept = gradient is not None
            call = entropy_call(*logits.shape, logits.dtype, labels.dtype, grad, kept, mean, *numbers)
            found = tuple(logits.new_empty(size, dtype=torch.float32) for size in (len(labels), len(labels), 1))
            call(logits, _lent(labels), *found, *(() if gradient is None else (gradient,)))
        except NotImplementedError as why:
            found = None
            cuda.tell("torch", why)
    if found is None:
        found = entropy_by_torch(
            logits, labels, gradient, ignore=ignore, smoothing=smoothing, zloss=zloss, mean=mean, grad=grad
        )
    return found


def _entropy(logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, mean: bool) -> Any:
    loss, lse, total = entropy_run(_lent(rows(logits)), labels.reshape(-1), ignore, smoothing, zloss, mean, False)
    return loss.view(labels.shape), lse.view(labels.shape), total.reshape(())


def _entropy_trained(logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, mean: bool) -> Any:
    given = _lent(rows(logits))
    own = torch.empty_like(given)
    loss, lse, total = entropy_run(given, labels.reshape(-1), ignore, smoothing, zloss, mean, True, own)
    return loss.view(labels.shape), lse.view(labels.shape), total.reshape(()), own.view(logits.shape)


for _device in ("CPU", "CUDA"):
    lib.impl("cross_entropy", _entropy, _device)
    lib.impl("cross_entropy_trained", _entropy_trained, _device)


def _entropy_shapes(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    make = lambda shape: logits.new_empty(shape, dtype=torch.float32)
    return make(labels.shape), make(labels.shape), make(())


@fake("cross_entropy")
def _entropy_fake(logits: Tensor, labels: Tensor, *numbers: Any) -> Any:
    return _entropy_shapes(logits, labels)


@fake("cross_entropy_trained")
def _entropy_trained_fake(logits: Tensor, labels: Tensor, *numbers: Any) -> Any:
    return *_entropy_shapes(logits, labels), logits.new_empty(logits.shape)


def _save_entropy(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[3])
    ctx.mark_non_differentiable(output[1], output[3])
    ctx.set_materialize_grads(False)  # or torch makes zeros as large as the logits for an output that nobody sees
    ctx.mean = inputs[5]


# Whether the backward pass that runs leaves its graph for another one (``retain_graph``).
_is_asked_again = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def refuse_second(name: str, kept: Tensor) -> None:
    """Says that a gradient has none, where one of it is wanted; tracers look at every formula as if."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling() and not isinstance(kept, FakeTensor):
        raise NotImplementedError(f"{name}: its gradient has none; use torch's for second derivatives")


def _entropy_backward(ctx: Any, of_loss: Tensor | None, of_lse: None, of_total: Tensor | None, of_own: None) -> Any:
    (own,) = ctx.saved_tensors
    refuse_second("cross_entropy", own)
    # The caller took the total, or, of a sum, the losses of the rows.
    given = [g for g in (of_total, None if ctx.mean or of_loss is None else of_loss[..., None]) if g is not None]
    if not given:
        return (None,) * 6
    by = given[0] if len(given) == 1 else given[0] + given[1]
    return _times(own, by), None, None, None, None, None


def _times(own: Tensor, by: Tensor) -> Tensor:
    """A gradient that was kept, times what comes from behind: in its own place where nobody asks for it again."""
    many = torch._C._functorch.is_legacy_batchedtensor(by)  # many gradients at once (``is_grads_batched``)
    if many or torch.compiler.is_compiling() or type(own) not in PLAIN or is_watched() or _is_asked_again():
        return own * by.to(own.dtype)
    by = by.detach()
    if by.numel() > 1:
        return own.mul_(by)
    # On a host it costs nothing to see that there is nothing to do; a GPU looks for itself.
    done = (own.is_cuda and cuda.times(own, by)) or (own.is_cpu and float(by) == 1.0)
    return (own if done else own.mul_(by)).detach()  # one that is not ours any more is taken without a copy


_trained = operator("cross_entropy_trained", _entropy_trained, _save_entropy, _entropy_backward).call


compiled("cross_entropy", _entropy)


def _untrained(logits: Tensor, labels: Tensor, *numbers: Any) -> Any:
    """Without a gradient: straight to the kernel in a plain program."""
    plain = type(logits) in PLAIN and type(labels) in PLAIN and (logits.is_cpu or logits.is_cuda)
    if torch.compiler.is_compiling() or not plain or is_watched():
        return op.cross_entropy.default(logits, labels, *numbers)
    return _entropy(logits.detach(), labels, *numbers)


class _InPlace(torch.autograd.Function):
    """The gradient in the logits' own memory."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, *numbers: Any) -> Any:
        own = rows(logits)
        ignore, smoothing, zloss, ctx.mean = numbers
        loss, _, total = entropy_run(own, labels.reshape(-1), ignore, smoothing, zloss, ctx.mean, True)
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
    if torch.compiler.is_compiling() or type(logits) not in PLAIN or is_watched():
        return False
    if max(n, logits.numel() // n) > 1 << 20 or logits.numel() > 1 << 31 or labels.dtype not in (torch.int64, torch.int32):
        return False
    numbers = mean, ignore, smoothing, zloss
    return are_torchs(logits, entropy_call(logits.numel() // n, n, logits.dtype, labels.dtype, True, True, *numbers))


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


def check_labels(labels: Tensor, **beside: Tensor) -> None:
    """Whether labels are whole numbers, where the other one is."""
    ((name, other),) = beside.items()
    if labels.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"labels: holds {labels.dtype}, expected int64 or int32")
    if labels.device != other.device:
        raise ValueError(f"labels: is on {labels.device}, expected {other.device} like {name}")


def cross_entropy(
    logits: Tensor, labels: Tensor, ignore: int, smoothing: float, zloss: float, reduction: str, inplace: bool
) -> Tensor:
    check_entropy(logits, labels, smoothing, zloss, reduction)
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
        loss, _, total = _untrained(logits, labels, *numbers)
    elif zloss == 0.0 and _is_torchs(logits, labels, *numbers):
        return _by_torch_itself(logits, labels, ignore, smoothing, reduction)
    elif inplace and logits.is_contiguous() and not logits.is_leaf and not is_watched() and not torch.compiler.is_compiling():
        loss, total = _InPlace.apply(logits, labels, *numbers)
    else:
        loss, _, total, _ = _trained(logits, labels, *numbers)
    return loss if reduction == "none" else total
