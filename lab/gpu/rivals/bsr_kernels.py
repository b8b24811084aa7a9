"""Rivals of the block-sparse product on a GPU: torch's Triton kernel with its four knobs, cuSPARSE, cuBLAS on the filled matrix."""

import ctypes

import numpy as np
import torch

P, I64 = ctypes.c_void_p, ctypes.c_int64


class Matrix:
    """A block-sparse m x k matrix with blocks of bs x bc drawn to a pattern, and a dense k x n partner."""

    def __init__(self, m, k, n, bs, density, pattern="uniform", dtype=torch.float16, seed=1, bc=None, c_col=False):
        self.m, self.k, self.n, self.bs, self.dtype, self.pattern = m, k, n, bs, dtype, pattern
        self.bc, self.c_col = bc or bs, c_col
        bc = self.bc
        rng, rows, across = np.random.default_rng(seed), m // bs, k // bc
        self.nnz = nnz = round(rows * across * density)
        counts = np.array([nnz // rows + (i < nnz % rows) for i in rng.permutation(rows)])
        if pattern == "skewed":  # one row eight times as full as the mean, the others fall off by rank
            most = min(across, 8 * nnz // rows)
            weights = 1 / np.arange(1, rows + 1)
            counts = np.minimum(weights / weights.sum() * nnz, most).astype(int)
            counts[0] = most
            at = 1
            while counts.sum() < nnz:
                counts[at] += counts[at] < most
                at = at % (rows - 1) + 1
            counts = rng.permutation(counts)
        self.columns = [self.draw(rng, pattern, r, rows, across, int(c)) for r, c in enumerate(counts)]
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        self.row_ptr = torch.tensor(ends, device="cuda")
        self.col_idx = torch.tensor(np.concatenate(self.columns).astype(np.int32), device="cuda")
        self.values = torch.randn(nnz, bs, bc, device="cuda").to(dtype)
        self.b = torch.randn(k, n, device="cuda").to(dtype)
        filled = torch.zeros(rows, across, bs, bc, device="cuda", dtype=dtype)
        at = torch.repeat_interleave(torch.arange(rows, device="cuda"), torch.tensor(np.diff(ends), device="cuda"))
        filled[at, self.col_idx.long()] = self.values
        self.filled = filled.permute(0, 2, 1, 3).reshape(m, k).contiguous()
        wide = torch.float64 if dtype == torch.float32 else torch.float32
        self.right = (self.filled.to(wide) @ self.b.to(wide)).float()

    @staticmethod
    def draw(rng, pattern, row, rows, across, count):
        if pattern == "banded":
            start = min(max(row * across // rows - count // 2, 0), across - count)
            return np.arange(start, start + count)
        if pattern == "powerlaw":
            chosen = set()
            while len(chosen) < count:
                chosen.add(min(int(rng.random() ** 3 * across), across - 1))
            return np.array(sorted(chosen), dtype=int)
        return np.sort(rng.choice(across, count, replace=False))

    def padded(self, most):
        """Columns (-1 is none) and blocks side by side, as many in every block row."""
        rows, bs = len(self.columns), self.bs
        columns = torch.full((rows, most), -1, dtype=torch.int32, device="cuda")
        blocks = torch.zeros(rows, most, bs, bs, dtype=self.dtype, device="cuda")
        ends = self.row_ptr.tolist()
        for row, (begin, end) in enumerate(zip(ends, ends[1:])):
            columns[row, : end - begin] = self.col_idx[begin:end]
            blocks[row, : end - begin] = self.values[begin:end]
        return columns, blocks.permute(0, 2, 1, 3).contiguous()

    def poisoned(self):
        """An output full of NaN; a column-major one is seen turned, and lies as its columns do."""
        if self.c_col:
            return torch.full((self.n, self.m), float("nan"), device="cuda", dtype=self.dtype).t()
        return torch.full((self.m, self.n), float("nan"), device="cuda", dtype=self.dtype)

    def error(self, out):
        return ((out.float() - self.right).norm() / self.right.norm()).item()

    def rivals(self):
        """Launchers by name."""
        made = {"cuSPARSE BSR": cusparse(self)} if self.bs == self.bc else {}
        torch.backends.cuda.matmul.allow_tf32 = self.pattern == "tf32"
        if self.dtype == torch.float32:
            if self.pattern == "tf32":
                made["cuBLAS, filled"] = lambda out=self.poisoned(): torch.mm(self.filled, self.b, out=out)
            return made
        most = max(len(columns) for columns in self.columns)
        if self.bs == self.bc and most * len(self.columns) <= 2 * self.nnz:
            made["Blocked-ELL (writing it out not counted)"] = cusparse(self, self.padded(most))
        made["cuBLAS, filled"] = lambda out=self.poisoned(): torch.mm(self.filled, self.b, out=out)
        if self.c_col:  # torch's kernel writes rows
            return made
        stages = (1, 2, 3) if self.bs == 128 else (2, 3, 4)
        tiles = [t for t in ((64, 128, 256) if self.n <= 256 else (128, 256)) if self.n % t == 0]
        for tile, deep, warps in [(t, s, w) for t in tiles for s in stages for w in (4, 8)]:
            made[f"Triton tile={tile} stages={deep} warps={warps}"] = triton(self, tile, deep, warps)
        return made


def triton(s, tile, stages, warps):
    """torch's own block-sparse kernel; its table of tuned knobs knows one other GPU only."""
    from torch.sparse._triton_ops import bsr_dense_addmm

    matrix = torch.sparse_bsr_tensor(s.row_ptr, s.col_idx, s.values, size=(s.m, s.k))
    out, meta = s.poisoned(), dict(SPLIT_N=s.n // tile, GROUP_SIZE_ROW=4, num_stages=stages, num_warps=warps)
    return lambda: bsr_dense_addmm(out, matrix, s.b, beta=0, alpha=1, out=out, meta=meta)


def cusparse(s, ell=None, loaded={}):
    """SpMM over a BSR descriptor, or over Blocked-ELL columns and blocks."""
    if not loaded:
        loaded["library"] = ctypes.CDLL("libcusparse.so.12")
        loaded["handle"] = P()
        assert loaded["library"].cusparseCreate(ctypes.byref(loaded["handle"])) == 0
    library, handle = loaded["library"], loaded["handle"]
    kind = {torch.float16: 2, torch.bfloat16: 14, torch.float32: 0}[s.dtype]
    a, b, c, out = P(), P(), P(), s.poisoned()
    pointer = lambda t: P(t.data_ptr())  # noqa: E731
    rows, across, bs = I64(s.m // s.bs), I64(s.k // s.bs), I64(s.bs)
    # Indices of 32 bits (2), from zero (0), blocks and matrices row-major (2), C column-major (1) where asked.
    if ell:
        wide = I64(ell[0].shape[1] * s.bs)
        status = library.cusparseCreateBlockedEll(
            ctypes.byref(a), I64(s.m), I64(s.k), bs, wide, pointer(ell[0]), pointer(ell[1]), 2, 0, kind
        )
    else:
        status = library.cusparseCreateBsr(
            ctypes.byref(a), rows, across, I64(s.nnz), bs, bs, pointer(s.row_ptr), pointer(s.col_idx), pointer(s.values), 2, 2, 0, kind, 2
        )
    assert status == 0, status
    library.cusparseCreateDnMat(ctypes.byref(b), I64(s.k), I64(s.n), I64(s.n), pointer(s.b), kind, 2)
    library.cusparseCreateDnMat(ctypes.byref(c), I64(s.m), I64(s.n), I64(s.m if s.c_col else s.n), pointer(out), kind, 1 if s.c_col else 2)
    one, zero, size = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_size_t()
    call = [handle, 0, 0, ctypes.byref(one), a, b, ctypes.byref(zero), c, 0, 0]
    assert library.cusparseSpMM_bufferSize(*call, ctypes.byref(size)) == 0
    room = torch.empty(max(16, size.value), dtype=torch.uint8, device="cuda")

    def run():
        library.cusparseSetStream(handle, P(torch.cuda.current_stream().cuda_stream))
        assert library.cusparseSpMM(*call, pointer(room)) == 0

    run.keep, run.out = (one, zero, room, out, ell), out
    return run
