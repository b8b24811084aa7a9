"""torch's block-sparse products as candidates: the CPU's, and its own kernel on CUDA devices with its knobs open.

The kernel is the one behind ``torch.sparse``'s products. It is launched directly: what torch does around it on the host
takes several times as long as the kernel itself.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
from typing import Any

import torch
from torch import Tensor

from ..callables.compile_pool import compiler
from ..operator.candidate import Candidate
from ..operator.problem_text import fields, of_sparse
from ..operator.sparse_warning import sparse

_log = logging.getLogger("warplap")


# On the CPU.


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
    inputs = fields(problem)
    if inputs.keys() & {"alpha", "bc", "beta", "bias", "c", "inplace", "turned"}:
        return "plain products only"
    return None if inputs["dtype"] == "f32" else "torch's block-sparse product on the CPU has no half types"


# On CUDA devices.


def _tiles(n: int) -> list[int]:
    return [tile for tile in (256, 128, 64, 32) if n % tile == 0][:2]


def fit(problem: str) -> str | None:
    """Why the kernel stands aside from a problem, if it does."""
    inputs = fields(problem)
    bs, n = int(inputs["bs"]), int(inputs["n"])
    if inputs.keys() & {"alpha", "bc", "beta", "bias", "c", "inplace", "turned", "tf32"}:
        return "plain products only"
    if inputs.get("dtype") not in ("f16", "bf16"):
        return "Triton's kernel sums float32 in float64: half types only"
    if bs < 16 or bs & (bs - 1):
        return "Triton's blocks are powers of two from 16"
    if not _tiles(n):
        return "columns of B must be a multiple of 32"
    # Looked at, not imported: that takes seconds, and a race has begun. It is imported while it is compiled.
    if importlib.util.find_spec("triton") is None:
        return "torch's Triton kernel is not there: Triton is not installed"
    return None


def space(problem: str) -> dict[str, list[int]]:
    """Columns of a tile, depth of the pipeline, warps."""
    inputs = fields(problem)
    wide = int(inputs["bs"]) == 128
    return {"STAGES": [2, 3] if wide else [3, 4], "TILE": _tiles(int(inputs["n"])), "WARPS": [8] if wide else [4]}


_result: list[Any] = []


def _kernel() -> Any:
    if not _result:
        import triton.language as tl
        from torch.sparse._triton_ops import _bsr_strided_addmm_kernel as kernel

        if len(kernel.arg_names) != 55:
            raise RuntimeError(f"it takes {len(kernel.arg_names)} arguments, 55 were expected")
        _result.extend([kernel, tl.float32])
    return _result


def _launch(
    call: Any, values: Any, crow: Any, col: Any, b: Any, out: Any,
    shape: tuple[int, int, int, int, int], strides: tuple[int, ...], TILE: int, STAGES: int, WARPS: int,
) -> None:  # fmt: skip
    """Launches the kernel, or compiles it where tensors are types."""
    m, k, n, bs, blocks = shape
    down, right = strides
    tiled = (m * n, bs * n, TILE, n, 1)
    call(
        values, blocks * bs * bs, bs * bs, bs, 1,
        crow, m // bs + 1, 1, col, blocks, 1,
        out, *tiled,  # what beta would be multiplied with: not read
        b, k * n, bs * down, TILE * right, down, right,
        out, 0, 0, 0, 0, 0, out, 0, 0, 0, 0, 0,  # factors of rows and columns: not read
        out, *tiled,
        0, 1,
        beta_is_one=False, beta_is_nonzero=False, alpha_is_one=True, left_alpha_is_one=True, right_alpha_is_one=True,
        BLOCKSIZE_ROW=bs, BLOCKSIZE_INNER=bs, BLOCKSIZE_COL=TILE, allow_tf32=True, acc_dtype=_kernel()[1],
        GROUP_SIZE_ROW=4, SPLIT_N=n // TILE, num_stages=STAGES, num_warps=WARPS,
    )  # fmt: skip


def run(
    crow: Tensor, col: Tensor, values: Tensor, b: Tensor, c: Tensor,
    *, m: int, k: int, TILE: int, STAGES: int, WARPS: int,
) -> None:  # fmt: skip
    """``c = a @ b`` with the indices, blocks and shape of ``a``."""
    n, bs = b.shape[1], values.shape[1]
    call = _kernel()[0][(m // bs, n // TILE, 1)]
    shape = (m, k, n, bs, values.shape[0])
    _launch(call, values, crow, col, b, c, shape, b.stride(), TILE, STAGES, WARPS)


def compile_here(problem: str, TILE: int, STAGES: int, WARPS: int) -> None:
    """Compiles the kernel for a problem and a setting; Triton keeps it on disk."""
    inputs = fields(problem)
    m, k, n, bs = (int(inputs[name]) for name in ("m", "k", "n", "bs"))
    dtype = torch.float16 if inputs["dtype"] == "f16" else torch.bfloat16
    blocks = round(float(inputs["density"]) * (m // bs) * (k // bs))
    call = functools.partial(_kernel()[0].warmup, grid=(m // bs, n // TILE, 1))
    strides = (1, k) if inputs.get("b") == "col" else (n, 1)
    shape, index = (m, k, n, bs, blocks), torch.int32
    _launch(call, dtype, index, index, dtype, dtype, shape, strides, TILE, STAGES, WARPS)


def prepare(problem: str, *, TILE: int, STAGES: int, WARPS: int) -> None:
    """Has the kernel compiled by another process; where that cannot be, it is compiled here when its turn comes."""
    try:
        report = compiler.ask("candidates.torch_bsr", "compile_here", problem, TILE=TILE, STAGES=STAGES, WARPS=WARPS)
    except OSError as why:
        report = str(why)
    if report != "done":
        _log.info("%s was not compiled ahead: %s", problem, report)
    _kernel()


_ON_CPU = Candidate("bsr", "torch_bsr", _torch_bsr, _torch_bsr_fit, devices=("cpu",), facts=of_sparse)

CANDIDATES = [
    *([_ON_CPU] if torch.backends.mkl.is_available() else []),
    Candidate("sampled", "torch_bmm", _torch_bmm, devices=("cpu",)),
    Candidate("bsr", "torch_triton", run, fit, devices=("cuda",), space=space, prepare=prepare, facts=of_sparse),
]
