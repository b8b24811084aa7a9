"""torch's own implementations as candidates: they are proved, raced and recorded like every variant."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _warplap
from ..callables.race import source_of
from ..operator import problem_text
from ..operator.sparse_warning import sparse
from ..ops import gated, rope, softmax, topk_softmax as router
from ..ops.losses import cross_entropy as entropy
from ..ops.norm import dense as norm_dense, gradients as norm_gradients, quantized as norm_quantized
from ..ops.products import quantized
from ..tuner import modes
from . import torch_attention, torch_attention_grad, torch_bsr as _torch_bsr_cuda, torch_varlen


def _torch_mm(a: Tensor, b: Tensor, c: Tensor) -> None:
    torch.mm(a, b, out=c) if a.ndim == 2 else torch.bmm(a, b, out=c)


def _torch_mm_new(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b) if a.ndim == 2 else torch.bmm(a, b)


# What is done to a product in its own memory.
_FINISHES: dict[str, Callable[[Tensor], Any]] = {
    "relu": torch.relu_,
    "gelu": torch.ops.aten.gelu_,
    "gelu_tanh": lambda c: torch.ops.aten.gelu_(c, approximate="tanh"),
    "silu": lambda c: F.silu(c, inplace=True),
    "tanh": torch.tanh_,
    "sigmoid": torch.sigmoid_,
}


# What is done with another matrix, in the product's own memory.
_JOINS: dict[str, Callable[[Tensor, Tensor], Any]] = {"add": Tensor.add_, "mul": Tensor.mul_}


def _torch_linear(
    a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None = None, joined: Tensor | None = None,
    b2: Tensor | None = None, scale: Tensor | None = None, *,
    finish: Callable[[Tensor], Any] | None, join: Callable[[Tensor, Tensor], Any] | None, rms: float | None,
) -> None:  # fmt: skip
    """What ``F.linear`` does with matrices, into memory that is there already; then the activation, then the join or
    the other product of a pair. A norm in front is torch's own; given factors go over the product."""
    if rms is not None:
        a = F.rms_norm(a, a.shape[-1:], eps=rms)
    if scale is not None:
        _torch_mm(a, b, c)
        _scaled(c, scale, bias)
    elif bias is None:
        _torch_mm(a, b, c)
    else:
        torch.addmm(bias, a, b, out=c) if a.ndim == 2 else torch.baddbmm(bias, a, b, out=c)
    if finish is not None:
        finish(c)
    if join is not None and joined is not None:
        join(c, joined)
    if b2 is not None:
        c.mul_(_scaled(_torch_mm_new(a, b2), scale))


def _scaled(c: Tensor, scale: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """A product times one factor, or one for each row of all of a batch, and then its bias."""
    if scale is not None:
        c.mul_(scale if scale.numel() == 1 else scale.view(*c.shape[:-1], 1))
    return c if bias is None else c.add_(bias)


def _torch_linear_new(
    a: Tensor, b: Tensor, bias: Tensor | None = None, joined: Tensor | None = None, b2: Tensor | None = None,
    scale: Tensor | None = None, *,
    finish: Callable[[Tensor], Any] | None, join: Callable[[Tensor, Tensor], Any] | None, rms: float | None,
) -> Tensor:  # fmt: skip
    """The same as a new tensor."""
    if rms is not None:
        a = F.rms_norm(a, a.shape[-1:], eps=rms)
    if scale is not None:
        c = _scaled(_torch_mm_new(a, b), scale, bias)
    elif bias is None:
        c = _torch_mm_new(a, b)
    else:
        c = torch.addmm(bias, a, b) if a.ndim == 2 else torch.baddbmm(bias, a, b)
    if finish is not None:
        finish(c)
    if join is not None and joined is not None:
        join(c, joined)
    return c if b2 is None else c.mul_(_scaled(_torch_mm_new(a, b2), scale))


def _has_epilogue(problem: str) -> bool:
    return bool(problem_text.fields(problem).keys() & {"bias", "act", "join", "pair", "scale", "rms"})


def _torch_mm_fit(problem: str) -> str | None:
    aside = "it has no factors and no norm, adds no bias, has no activation, joins nothing and is no pair"
    return aside if _has_epilogue(problem) else None


def _torch_linear_fit(problem: str) -> str | None:
    inputs = problem_text.fields(problem)
    if inputs["dtype"] == "f16" and "scale" in inputs:
        return "the product would be rounded to f16, and perhaps be too large for it, before it is scaled"
    plain = "without factors, a norm, a bias, an activation, a join and a pair it is a plain product"
    return None if _has_epilogue(problem) else plain


def _torch_linear_facts(problem: str) -> dict[str, Any]:
    inputs = problem_text.fields(problem)
    rms = float(inputs["rms"]) if "rms" in inputs else None
    finish, join = _FINISHES.get(inputs.get("act", "none")), _JOINS.get(inputs.get("join", "none"))
    return {"finish": finish, "join": join, "rms": rms}


def _torch_bsr(crow: Tensor, col: Tensor | None, values: Tensor, b: Tensor, c: Tensor, *, m: int, k: int) -> None:
    if col is not None:  # else crow is the sparse tensor itself
        crow = sparse(crow, col, values, (m, k))
    torch.mm(crow, b, out=c)


def _torch_bmm(crow: Tensor, col: Tensor, grad: Tensor, b: Tensor, values: Tensor) -> None:
    bs = values.shape[1]
    rows = torch.searchsorted(crow, torch.arange(col.shape[0], dtype=crow.dtype), right=True) - 1
    left, right = grad.reshape(-1, bs, grad.shape[1])[rows], b.reshape(-1, bs, b.shape[1])[col.long()]
    torch.bmm(left, right.transpose(1, 2), out=values)


def _torch_bsr_fit(problem: str) -> str | None:
    inputs = problem_text.fields(problem)
    if inputs.keys() & {"alpha", "bc", "beta", "bias", "c", "inplace", "turned"}:
        return "plain products only"
    return None if inputs["dtype"] == "f32" else "torch's block-sparse product on the CPU has no half types"


def add(
    op: str,
    name: str,
    call: Callable[..., Any],
    fit: Callable[[str], str | None] | None = None,
    *,
    device: str = "cpu",
    space: Callable[[str], dict[str, list[int]]] | None = None,
    prepare: Callable[..., Any] | None = None,
    facts: Callable[[str], dict[str, Any]] | None = None,
    returns: bool = False,
    give: Callable[..., Any] | None = None,
    _as_called: dict[str, Callable[..., Any]] | None = None,  # torch's own functions only: no proof sees them
) -> None:
    """Lets a callable race in an operation ("matmul", "attention", "bsr_matmul") on the CPU or on CUDA devices.

    It gets torch tensors over the race's own buffers, one for each slot of the operation in their order, and writes the
    output: ``call(a, b, c, bias)``, ``call(q, k, v, mask, out)``, ``call(crow, col, values, b, c)``. Where a problem
    does not have a slot (``mask``) it gets None, and nothing where no further ones follow (``bias``). With ``returns``
    it gets what is read (``call(q, k, v, mask)``) and returns the output, which becomes a user's answer without a copy.
    One that writes may come with ``give``, which returns the output in the same way, for users who give none.

    What else it needs to know of a problem ``facts`` says: it is asked once with the problem's text and gives keyword
    arguments, ``lambda problem: {"causal": "causal=true" in problem}``. ``fit`` is asked likewise and says why the
    callable stands aside, or None. ``space`` gives settings to be tuned, by name the whole numbers to try; they come as
    keyword arguments too. ``prepare`` is called with the problem's text and the settings before the callable's turn, on
    another thread: the place to compile. Where it is chosen for a user's sparse tensor on the CPU, ``crow`` is that
    tensor and ``col`` None.
    """
    version = f"{torch.__version__} {torch.get_num_threads() if device == 'cpu' else torch.version.cuda}"
    source = f"{source_of(call)}\n{version}"
    _warplap.add_variant(
        _warplap.read_operation(op), name, source, call, fit,
        device=device, space=space, prepare=prepare, facts=facts, returns=returns, give=give,
        as_called=_as_called,
    )  # fmt: skip
    _warplap.forget()
    modes.changed()


def join() -> None:
    """torch's implementations join the catalogs."""
    _warplap.configure(libraries=[("torch", f"{torch.__version__}/{torch.get_num_threads()}")])
    add(
        "gemm", "torch_mm", _torch_mm, _torch_mm_fit,
        give=_torch_mm_new, _as_called={"matmul": torch.mm, "linear": F.linear},
    )  # fmt: skip
    for device in ("cpu", "cuda"):
        add(
            "gemm", "torch_linear", _torch_linear, _torch_linear_fit,
            device=device, facts=_torch_linear_facts, give=_torch_linear_new,
            _as_called={"linear": F.linear},
        )  # fmt: skip
    facts = problem_text.of_attention
    add("attention", "torch_sdpa", torch_attention.default, torch_attention.gives_sums, facts=facts, returns=True)
    for name, device, forward, backward, fit, grad_fit in torch_attention_grad.FUSED:
        add("attention", name, forward, fit, device=device, facts=facts, returns=True)
        grad_name = f"{name.removesuffix('_lse')}_grad"
        add("attention_grad", grad_name, backward, grad_fit, device=device, facts=facts, returns=True)
    for device in ("cpu", "cuda"):
        add(
            "attention_mask_grad", "torch_mask_grad", torch_attention_grad.of_mask, torch_attention.unknown_fields,
            device=device, facts=problem_text.of_attention, returns=True,
        )  # fmt: skip
    if torch.backends.mkl.is_available():
        add("bsr", "torch_bsr", _torch_bsr, _torch_bsr_fit, facts=problem_text.of_sparse)
    add("sampled", "torch_bmm", _torch_bmm)
    for device in ("cpu", "cuda"):
        add(
            "norm", "torch_norm", norm_dense.by_torch, norm_dense.fit,
            device=device, facts=norm_dense.facts, returns=True,
        )  # fmt: skip
        add(
            "norm", "torch_norm_quant", norm_quantized.by_torch, norm_quantized.fit,
            device=device, facts=norm_quantized.facts, returns=True,
        )  # fmt: skip
        add(
            "norm_grad", "torch_norm_grad", norm_gradients.by_torch, norm_dense.fit,
            device=device, facts=norm_gradients.facts, returns=True,
        )  # fmt: skip
        for op, name, call, facts in (
            ("softmax", "torch_softmax", softmax.by_torch, softmax.facts),
            ("softmax_grad", "torch_softmax_grad", softmax.grad_by_torch, softmax.grad_facts),
            ("topk_softmax", "torch_topk_softmax", router.by_torch, router.facts),
        ):
            add(op, name, call, device=device, facts=facts, returns=True)
        add("cross_entropy", "torch_cross_entropy", entropy.into, device=device, facts=entropy.facts)
        add("gated", "torch_gated", gated.by_torch, gated.fit, device=device, facts=gated.facts, returns=True)
        add("rope", "torch_rope", rope.by_torch, rope.fit, device=device, facts=rope.facts, returns=True)
        fits = functools.partial(quantized.scaled_fit, device), functools.partial(quantized.int_fit, device)
        add("qgemm", "torch_scaled_mm", quantized.by_scaled_mm, fits[0], device=device, facts=quantized.facts)
        add("qgemm", "torch_int_mm", quantized.by_int_mm, fits[1], device=device)
    if hasattr(torch.ops.aten, "_flash_attention_forward"):
        for grad, call, fit in torch_varlen.WAYS:
            add(
                "attention_grad" if grad else "attention", f"torch_varlen{'_grad' if grad else ''}", call, fit,
                device="cuda", facts=torch_varlen.facts, returns=True,
            )  # fmt: skip
    for name, way, fit in torch_attention.BACKENDS:
        add("attention", name, way, fit, device="cuda", facts=problem_text.of_attention, returns=True)
    add(
        "bsr", "torch_triton", _torch_bsr_cuda.run, _torch_bsr_cuda.fit,
        device="cuda", space=_torch_bsr_cuda.space, prepare=_torch_bsr_cuda.prepare, facts=problem_text.of_sparse,
    )  # fmt: skip


__all__: list[Any] = ["add", "join"]
