"""torch's own block-sparse kernel on CUDA devices, a candidate with its knobs open.

The kernel is the one behind ``torch.sparse``'s products. It is launched directly: what torch does around it on the host
takes several times as long as the kernel itself.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def _fields(problem: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in problem.split(":", 1)[1].split(","))


def _tiles(n: int) -> list[int]:
    return [tile for tile in (256, 128, 64, 32) if n % tile == 0][:2]


def fit(problem: str) -> str | None:
    """Why the kernel stands aside from a problem, if it does."""
    fields = _fields(problem)
    bs, n = int(fields["bs"]), int(fields["n"])
    if fields.get("dtype") not in ("f16", "bf16"):
        return "Triton's kernel sums float32 in float64: half types only"
    if bs < 16 or bs & (bs - 1):
        return "Triton's blocks are powers of two from 16"
    if not _tiles(n):
        return "columns of B must be a multiple of 32"
    try:
        _kernel()
    except Exception as why:
        return f"torch's Triton kernel is not there: {why}"
    return None


def space(problem: str) -> dict[str, list[int]]:
    """Columns of a tile, depth of the pipeline, warps."""
    fields = _fields(problem)
    wide = int(fields["bs"]) == 128
    return {"STAGES": [2, 3] if wide else [3, 4], "TILE": _tiles(int(fields["n"])), "WARPS": [8] if wide else [4]}


_found: list[Any] = []


def _kernel() -> Any:
    if not _found:
        import triton.language as tl
        from torch.sparse._triton_ops import _bsr_strided_addmm_kernel as kernel

        if len(kernel.arg_names) != 55:
            raise RuntimeError(f"it takes {len(kernel.arg_names)} arguments, 55 were expected")
        _found.extend([kernel, tl.float32])
    return _found


def run(
    crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor,
    *, TILE: int, STAGES: int, WARPS: int,
) -> None:  # fmt: skip
    """``out = a @ b`` with the indices, blocks and shape of ``a``."""
    kernel, acc = _kernel()
    n, bs = b.shape[1], values.shape[1]
    down, right = b.stride()
    tiled = (m * n, bs * n, TILE, n, 1)
    kernel[(m // bs, n // TILE, 1)](
        values, values.shape[0] * bs * bs, bs * bs, bs, 1,
        crow, m // bs + 1, 1, col, values.shape[0], 1,
        out, *tiled,  # what beta would be multiplied with: not read
        b, k * n, bs * down, TILE * right, down, right,
        out, 0, 0, 0, 0, 0, out, 0, 0, 0, 0, 0,  # factors of rows and columns: not read
        out, *tiled,
        0, 1,
        beta_is_one=False, beta_is_nonzero=False, alpha_is_one=True, left_alpha_is_one=True, right_alpha_is_one=True,
        BLOCKSIZE_ROW=bs, BLOCKSIZE_INNER=bs, BLOCKSIZE_COL=TILE, allow_tf32=True, acc_dtype=acc,
        GROUP_SIZE_ROW=4, SPLIT_N=n // TILE, num_stages=STAGES, num_warps=WARPS,
    )  # fmt: skip
