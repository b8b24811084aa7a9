"""torch's own implementations as candidates: they are proved, raced and recorded like every variant."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _torch_bsr as _torch_bsr_cuda
from . import _warplap
from ._callables import source_of


def _torch_mm(a: Tensor, b: Tensor, out: Tensor) -> None:
    torch.mm(a, b, out=out)


def _torch_sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, gqa: bool, out: Tensor
) -> None:
    out.copy_(F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=gqa))


def _torch_bsr(crow: Tensor, col: Tensor | None, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    if col is not None:  # else crow is the sparse tensor itself
        crow = torch.sparse_bsr_tensor(crow, col, values, (m, k), check_invariants=False)
    torch.mm(crow, b, out=out)


def _torch_bmm(crow: Tensor, col: Tensor, grad: Tensor, b: Tensor, values: Tensor) -> None:
    bs = values.shape[1]
    rows = torch.searchsorted(crow, torch.arange(col.shape[0], dtype=crow.dtype), right=True) - 1
    left, right = grad.reshape(-1, bs, grad.shape[1])[rows], b.reshape(-1, bs, b.shape[1])[col.long()]
    torch.bmm(left, right.transpose(1, 2), out=values)


def _torch_bsr_fit(problem: str) -> str | None:
    if any(f",{field}=" in problem for field in ("alpha", "bc", "beta", "c", "turned")):
        return "plain products only"
    return None if "dtype=f32" in problem else "torch's block-sparse product on the CPU has no half types"


def add(
    op: str,
    name: str,
    call: Callable[..., None],
    fit: Callable[[str], str | None] | None = None,
    *,
    device: str = "cpu",
    space: Callable[[str], dict[str, list[int]]] | None = None,
    prepare: Callable[..., Any] | None = None,
) -> None:
    """Lets a callable race in an operation ("matmul", "attention", "bsr_matmul") on the CPU or on CUDA devices.

    It gets torch tensors over the race's own buffers and writes into the last one: ``call(a, b, out)``,
    ``call(q, k, v, mask, is_causal, scale, enable_gqa, out)``, ``call(crow, col, values, m, k, b, out)``. Where its own
    choice is called with a user's sparse tensor on the CPU, ``crow`` is that tensor and ``col`` None. ``fit`` is asked
    with the problem's text and says why the callable stands aside, or None. ``space`` is asked likewise and gives
    settings to be tuned, by name the whole numbers to try; they come as keyword arguments. ``prepare`` is called with
    the problem's text and the settings before the callable's turn, on another thread: the place to compile.
    """
    version = f"{torch.__version__} {torch.get_num_threads() if device == 'cpu' else torch.version.cuda}"
    source = f"{source_of(call)}\n{version}"
    _warplap.add_variant(
        _warplap.read_operation(op), name, source, call, fit, device=device, space=space, prepare=prepare
    )
    _warplap.forget()


def join() -> None:
    """torch's implementations join the catalogs."""
    _warplap.configure(libraries=[("torch", f"{torch.__version__}/{torch.get_num_threads()}")])
    add("gemm", "torch_mm", _torch_mm)
    add("attention", "torch_sdpa", _torch_sdpa)
    if torch.backends.mkl.is_available():
        add("bsr", "torch_bsr", _torch_bsr, _torch_bsr_fit)
    add("sampled", "torch_bmm", _torch_bmm)
    add(
        "bsr", "torch_triton", _torch_bsr_cuda.run, _torch_bsr_cuda.fit,
        device="cuda", space=_torch_bsr_cuda.space, prepare=_torch_bsr_cuda.prepare,
    )  # fmt: skip


__all__: list[Any] = ["add", "join"]
