"""``warplap.grouped_mm``: products of rows sorted by expert, one weight matrix an expert."""

from __future__ import annotations

from typing import Any

from ...arrays import numpy as arrays
from ...operator.call.call_cache import prepared_call
from ...operator.call.direct import REFUSALS
from ...operator.call.eager import PLAIN
from ...operator.call.fallback import kernel_or_torch
from ...operator.candidate import Candidate
from ...operator.checks import MOST, dims, floats, is_double, ordinary
from ...operator.declare import Operator
from ...operator.layout import aligned, kernel_input
from ...operator.optional_torch import Tensor, torch
from ...operator.problem_text import DTYPES, dtype_name, fields, text
from ...operator.public import Public, compiling

# Experts at the most; torch does what is more.
_MOST_EXPERTS = 1024


# The problem.


@prepared_call
def _call(rows: int, k: int, n: int, experts: int, dtype: Any, by_columns: bool) -> str:
    """So many rows of k by so many matrices of k x n."""
    order = "col" if by_columns else "row"
    return text("grouped", rows=rows, n=n, k=k, experts=experts, dtype=dtype_name(dtype), w=order)


def _check(x: Any, w: Any, offsets: Any) -> None:
    """Whether shapes go together."""
    dims("x", x, 2)
    dims("w", w, 3)
    if x.shape[1] != w.shape[1]:
        expected = f"[experts, {x.shape[1]}, n] behind x of {list(x.shape)}"
        raise ValueError(f"w: has shape {list(w.shape)}, expected {expected}")
    if tuple(offsets.shape) != (w.shape[0],):
        expected = f"[{w.shape[0]}], an end for each matrix of w"
        raise ValueError(f"offsets: has shape {list(offsets.shape)}, expected {expected}")


def _check_ends(offsets: list[int], rows: int) -> None:
    """Whether ends rise, and lead nowhere."""
    begin = 0
    for i, end in enumerate(offsets):
        if end < begin:
            least = f"at least {begin}, the end of the expert before it" if i else "0 or more"
            raise ValueError(f"offsets: ends at {end} for expert {i}, expected {least}")
        begin = end
    if begin > rows:
        raise ValueError(f"offsets: ends at {begin} for the last expert, expected at most {rows}, the rows of x")


def _problem(x: Any, w: Any, offsets: Any) -> str:
    _check(x, w, offsets)
    return _call(*x.shape, w.shape[2], w.shape[0], x.dtype, _is_by_columns(w)).problem


def _is_by_columns(w: Any) -> bool:
    """Whether its matrices lie column by column: of torch's tensors those that are transposed views."""
    if not isinstance(w, Tensor):
        return False
    return not w.is_contiguous() and w.transpose(-2, -1).is_contiguous()


# Over arrays.


def _of_arrays(x: Any, w: Any, offsets: Any) -> Any:
    np = arrays.numpy()
    x, w, offsets = arrays.array(x, "x"), arrays.array(w, "w"), arrays.array(offsets, "offsets")
    _check(x, w, offsets)
    for name, t in (("x", x), ("w", w)):
        if t.dtype.name not in DTYPES or t.dtype != x.dtype:
            raise TypeError(f"{name}: holds {t.dtype}, expected float32 or float16, the same for both")
    if offsets.dtype != np.int32:
        raise TypeError(f"offsets: holds {offsets.dtype}, expected int32")
    if w.shape[0] > _MOST_EXPERTS:
        raise ValueError(f"w: has {w.shape[0]} matrices, expected at most {_MOST_EXPERTS} for arrays")
    _check_ends(offsets.tolist(), x.shape[0])
    y = np.zeros((x.shape[0], w.shape[2]), x.dtype)
    if 0 not in (*x.shape, *w.shape):
        plain = [np.ascontiguousarray(t) for t in (x, w, offsets)]
        _call(*x.shape, w.shape[2], w.shape[0], x.dtype, False)(*plain, y)
    return y


# By torch's own operators, which race too.


def loop(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    """One product for each expert that has rows, in every type: it waits for the offsets."""
    parts, begin = [], 0
    for matrix, end in zip(w.unbind(), offsets.tolist()):
        if end > begin:
            parts.append(x[begin:end] @ matrix)
            begin = end
    if begin < x.shape[0]:
        parts.append(x.new_zeros((x.shape[0] - begin, w.shape[2])))
    return torch.cat(parts) if parts else x.new_zeros((0, w.shape[2]))


def by_torch(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    """torch's grouped product."""
    return torch._grouped_mm(x, w, offs=offsets)


def fit(problem: str) -> str | None:
    """Where torch has kernels: lines of whole 16 bytes."""
    said = fields(problem)
    lines = 4 if said["dtype"] == "f32" else 8
    even = int(said["n"]) % lines == int(said["k"]) % lines == 0
    return None if even else "torch's takes lines of whole 16 bytes"


def fit_on_gpus(problem: str) -> str | None:
    """In other types torch's grouped product waits for the offsets, as a loop does."""
    return fit(problem) if fields(problem)["dtype"] == "bf16" else "bf16 only on GPUs: in other types it is a loop"


CANDIDATES = [
    Candidate("grouped", "torch_grouped_mm", by_torch, fit, devices=("cpu",), returns=True),
    Candidate("grouped", "torch_grouped_mm", by_torch, fit_on_gpus, devices=("cuda",), returns=True),
    # On GPUs it would wait for the offsets at every call.
    Candidate("grouped", "torch_loop", loop, devices=("cpu",), returns=True),
]


# Over torch's tensors.


def _laid(w: Tensor) -> tuple[Tensor, bool]:
    """Matrices as kernels take them, and whether they lie column by column."""
    w = w.resolve_neg()
    if _is_by_columns(w):
        return (aligned(w) if w.is_cuda else w), True
    return kernel_input(w), False


def _direct(x: Any, w: Any, offsets: Any) -> Any:
    """At once, over plain tensors of which nobody wants a gradient; None for everything else."""
    if type(x) not in PLAIN or type(w) not in PLAIN or type(offsets) is not Tensor:
        return None
    try:
        (rows, k), (experts, depth, n) = x.shape, w.shape
        if k != depth or offsets.dtype != torch.int32 or offsets.shape != (experts,) or not x.is_cuda:
            return None
        return _call(rows, k, n, experts, x.dtype, _is_by_columns(w)).direct(x, w, offsets)
    except REFUSALS:
        return None


def _run(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    result = _direct(x, w, offsets)
    if result is not None:
        return result  # type: ignore[no-any-return]
    if not x.is_cuda:
        _check_ends(offsets.tolist(), x.shape[0])
    if 0 in (*x.shape, *w.shape):
        return x.new_zeros((x.shape[0], w.shape[2]))
    x, offsets, (w, by_columns) = kernel_input(x), offsets.contiguous(), _laid(w)
    sizes = (*x.shape, w.shape[2], w.shape[0])
    largest = max(x.numel(), w.numel(), x.shape[0] * w.shape[2])
    is_raced = ordinary(x, w) and largest <= MOST and w.shape[0] <= _MOST_EXPERTS
    return kernel_or_torch(
        lambda: _call(*sizes, x.dtype, by_columns)(x, w, offsets), lambda: loop(x, w, offsets), is_raced
    )


def _shape(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[2]))


def _ends(offsets: Tensor, rows: int) -> Tensor:
    """Ends as kernels take them: one that goes back or leads past the rows is the nearest that does not."""
    return offsets.clamp(0, rows).cummax(0).values.to(torch.int32)


def weight_gradient(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    """The gradient of w, [experts, k, n]: each expert's rows of x, turned, by those of the gradient. torch's own
    products: its grouped one along rows on GPUs in bf16, else one for each expert."""
    offsets = _ends(offsets, x.shape[0])
    x, grad = kernel_input(x), kernel_input(grad)
    lines = (x.shape[1] | grad.shape[1]) % 8 == 0
    if x.is_cuda and x.dtype == torch.bfloat16 and lines and x.shape[0]:
        return torch._grouped_mm(x.t(), grad, offs=offsets)
    begin, parts = 0, []
    for end in offsets.tolist():
        parts.append(x[begin:end].t() @ grad[begin:end])
        begin = end
    return torch.stack(parts)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """x's gradient is the same operation by turned matrices, which is what second derivatives go through."""
    x, w, offsets = ctx.saved_tensors
    needs_x, needs_w, _ = ctx.needs_input_grad
    dx = None
    if needs_x:
        dx = GROUPED_MM.call(grad.contiguous(), w.transpose(-2, -1), offsets)
        # Rows of nobody have no share in any loss, and what lies there may be no number.
        last = _ends(offsets, x.shape[0])[-1] if offsets.shape[0] else 0
        is_nobodys = torch.arange(x.shape[0], device=x.device)[:, None] >= last
        dx = dx.masked_fill(is_nobodys, 0)
    return dx, weight_gradient(x, grad.contiguous(), offsets) if needs_w else None, None


GROUPED_MM = Operator(
    "grouped_mm(Tensor x, Tensor w, Tensor offsets) -> Tensor", _run, _shape, save=_save, backward=_backward,
    autocast=True,
)  # fmt: skip


def of_tensors(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    _check(x, w, offsets)
    if offsets.dtype != torch.int32:
        raise TypeError(f"offsets: holds {offsets.dtype}, expected torch.int32: offsets.int()")
    if offsets.device != x.device:
        raise ValueError(f"offsets: is on {offsets.device}, expected {x.device} like x: offsets.to(x.device)")
    if is_double(x, w):
        if not x.is_cuda:
            _check_ends(offsets.tolist(), x.shape[0])
        return loop(x, w, offsets)
    floats(x=x, w=w)
    return GROUPED_MM.call(x, w, offsets)  # type: ignore[no-any-return]


_public = Public(torch=of_tensors, arrays=_of_arrays, problem=_problem, operation="grouped")


@_public
def grouped_mm(x: Any, w: Any, offsets: Any) -> Any:
    """Rows of ``x`` (rows, k), sorted by expert, each by its expert's matrix of ``w`` (experts, k, n): what
    ``torch.nn.functional.grouped_mm`` computes with ``offs=offsets``.

    ``offsets`` are int32, where each expert's rows end, in rising order; an expert may have no rows. Rows behind the
    last end are nobody's: what the result holds there is not said. The matrices of ``w`` may be transposed views.
    Ends that go back or lead past the rows are refused on the CPU; on a GPU nobody waits for them, and each is taken as
    the nearest that does not. float32, float16 or bfloat16 with sums in float32; torch in, torch out (differentiable);
    NumPy in, NumPy out.
    """
    if not compiling():
        result = _direct(x, w, offsets)
        if result is not None:
            return result
    return _public.of({"x": x, "w": w, "offsets": offsets})
