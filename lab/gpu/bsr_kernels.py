"""Block-sparse products on one Hopper GPU: warplap's kernels beside tuned Triton, cuSPARSE and densified cuBLAS, in one run.

    python lab/gpu/bsr_kernels.py [--only TEXT] [--rounds 11] [--json FILE]

Needs torch, triton and cuda-bindings with NVRTC 13. The kernels' texts are taken from the crate and compiled here; each contestant
is captured into a graph of several launches, and graphs are replayed in short rounds in random order. Every contestant of
ours is proved right (relative error against float32, poisoned output) before it is timed. Times are medians in
microseconds with the 10th and 90th percentile; rates count stored blocks only.
"""

import argparse
import ctypes
import json
import pathlib
import random
import sys
import time

import numpy as np
import torch
from cuda.bindings import driver as cu
from cuda.bindings import nvrtc
from rivals import bsr_kernels as rivals

CRATES = pathlib.Path(__file__).resolve().parents[2] / "crates"
P, I, F = ctypes.c_void_p, ctypes.c_int, ctypes.c_float


def checked(answer):
    if int(answer[0]) != 0:
        raise RuntimeError(str(answer[0]))
    return answer[1] if len(answer) == 2 else answer[1:]


def function(stem, defines, shared, made={}):
    """A kernel of the crate, compiled with its constants and loaded."""
    key = (stem, shared, tuple(sorted(defines.items())))
    if key not in made:
        text = (CRATES / f"warplap-ops/src/bsr/cuda/{stem}.cu").read_bytes()
        names = ["hopper.cuh", "ampere.cuh", "element.cuh", "scaled.cuh", "small_blocks.cuh"]
        headers = [next((CRATES / "warplap-cuda/cuh").rglob(name)).read_bytes() for name in names]
        names = [name.encode() for name in names]
        program = checked(nvrtc.nvrtcCreateProgram(text, f"{stem}.cu".encode(), len(names), headers, names))
        options = [b"-arch=sm_90a", b"-std=c++17"] + [f"-D{k}={v}".encode() for k, v in defines.items()]
        if int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]) != 0:
            log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.decode())
        cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
        nvrtc.nvrtcGetCUBIN(program, cubin)
        entry = checked(cu.cuModuleGetFunction(checked(cu.cuModuleLoadData(cubin)), stem.encode()))
        limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(cu.cuFuncSetAttribute(entry, limit, shared))
        made[key] = entry
    return made[key]


def tensor_map(t, dims, strides, box, swizzle):
    kinds = {torch.float32: "FLOAT32", torch.float16: "FLOAT16", torch.bfloat16: "BFLOAT16"}
    kind = getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kinds[t.dtype]}")
    swizzle = getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{f'{swizzle}B' if swizzle else 'NONE'}")
    u64, u32 = cu.cuuint64_t, cu.cuuint32_t
    return checked(
        cu.cuTensorMapEncodeTiled(
            kind, len(dims), t.data_ptr(), [u64(d) for d in dims], [u64(s * t.element_size()) for s in strides],
            [u32(b) for b in box], [u32(1)] * len(dims),
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )  # fmt: skip


def attribute(kind, **values):
    a, v = cu.CUlaunchAttribute(), cu.CUlaunchAttributeValue()
    for name, value in values.items():
        if name == "cluster":
            v.clusterDim.x, v.clusterDim.y, v.clusterDim.z = value, 1, 1
        else:
            setattr(v, name, value)
    a.id, a.value = kind, v
    return a


def launch_config(grid, threads, shared, attributes):
    c = cu.CUlaunchConfig()
    c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX, c.blockDimY, c.blockDimZ = grid, 1, 1, threads, 1, 1
    c.sharedMemBytes, c.hStream = shared, torch.cuda.current_stream().cuda_stream
    c.attrs, c.numAttrs = attributes, len(attributes)
    return c


class Matrix(rivals.Matrix):
    """A drawn block-sparse matrix and its dense partner; what warplap's kernels need is added here."""

    def order(self, together):
        """The block rows as `order.rs` puts them together."""
        bits = [sum(1 << int(c) for c in columns) for columns in self.columns]
        left = sorted(range(len(bits)), key=lambda r: -bits[r].bit_count())
        order = []
        while left:
            order.append(left.pop(0))
            union = bits[order[-1]]
            for _ in range(together - 1):
                if left:
                    near = left[:512]
                    costs = [(bits[r] & ~union).bit_count() - (bits[r] & union).bit_count() for r in near]
                    order.append(left.pop(costs.index(min(costs))))
                    union |= bits[order[-1]]
        return torch.tensor(order, dtype=torch.int32, device="cuda")

    def launcher(self, stem, defines, threads, shared, grid, arguments, kinds, together, cluster=1):
        entry = function(stem, defines, shared)
        order = self.order(together) if together else None
        if cluster > 1:
            wanted = attribute(cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, cluster=cluster)
            most = checked(cu.cuOccupancyMaxActiveClusters(entry, launch_config(cluster, threads, shared, [wanted])))
            grid = min(grid, most) * cluster
        out = self.poisoned()
        # Nothing is scaled: no addend, alpha 1, beta 0.
        list_ = [*arguments(out, order.data_ptr() if together else 0), 0, 1.0, 0.0]
        kinds = [*kinds, P, F, F]
        early = attribute(
            cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            programmaticStreamSerializationAllowed=1,
        )

        def run():
            c = launch_config(grid, threads, shared, [early])
            checked(cu.cuLaunchKernelEx(c, entry, (tuple(list_), tuple(kinds)), 0))

        run.out, run.keep = out, order
        return run

    def indices(self, order):
        return [self.row_ptr.data_ptr(), self.col_idx.data_ptr(), order]

    def c_map(self, c, lines):
        if self.c_col:
            return tensor_map(c, [self.m, self.n], [self.m], [lines, 64], lines * 2)
        return tensor_map(c, [self.n, self.m], [self.n], [64, lines], 128)

    def panels(self, lines, wide):
        return tensor_map(self.b, [64, self.k, self.n // 64], [self.n, 64], [64, lines, wide // 64], 128)

    def union(self, lines, bn, cn=1, ctas=1, order=0, grouped=True, queue=0):
        slots = 1 if (lines > 2 and lines * bn == 512) or bn == 64 or ctas > 1 else 2
        stage, fixed = bn * 128 + lines * 8192, lines * slots * 8192
        deep = min(8, ((232448 + 1024) // ctas - 1024 - 512 - fixed - 2048) // stage)
        facts = dict(DTYPE=0, BS=self.bs, B_COL=0, C_COL=int(self.c_col), WIDE=1, PASSING=1, CONS=lines, BN=bn, CTAS=ctas, CN=cn, ORDER=order)
        rows = self.nnz * self.bs
        tiles = -(-(self.m // 64) // lines) * -(-self.n // (bn * cn))
        counters = torch.zeros(2, dtype=torch.int32, device="cuda")
        self.kept.append(counters)
        return self.launcher(
            "wgmma_union", dict(facts, STAGES=deep, SLOTS=slots, DYNAMIC=queue), 128 * (lines + 1), deep * stage + fixed + 1024,
            tiles if cn > 1 else min(tiles, 132 * ctas),
            lambda c, o: [
                tensor_map(self.values, [self.bs, rows], [self.bs], [64, 64 // cn], 128), self.panels(64, bn),
                self.c_map(c, 64), *self.indices(o), self.m, self.n, counters.data_ptr(),
            ],
            [None, None, None, P, P, P, I, I, P], max(1, lines * 64 // self.bs) if grouped else 0, cn,
        )  # fmt: skip

    def pack(self, bn=256, cm=1):
        stage, fixed, rows = bn * 128 + 2 * 8192, 2 * 2 * 8192, cm * 128 // self.bs
        deep = min(6, (232448 - 512 - fixed - 2048) // stage)
        facts = dict(DTYPE=0, BS=self.bs, WIDE=1, PASSING=1, CONS=2, BN=bn, CM=cm, ORDER=0, STAGES=deep, SLOTS=2)
        tiles, box, tall = -(-(self.m // self.bs) // rows) * -(-self.n // bn), [self.bs, self.bs], self.nnz * self.bs
        return self.launcher(
            "wgmma_pack", facts, 384, deep * stage + fixed + 1024, tiles if cm > 1 else min(tiles, 132),
            lambda c, o: [
                tensor_map(self.values, [self.bs, tall], [self.bs], box, self.bs * 2), self.panels(self.bs, bn),
                self.c_map(c, self.bs), *self.indices(o), self.m, self.n, tall,
            ],
            [None, None, None, P, P, P, I, I, I], rows, cm,
        )  # fmt: skip

    def swapab(self, bn, slabs, grouped=True, deal=0):
        rows, columns = 32768 // bn // self.bs, self.k // self.bs
        stage = slabs * (self.bs * bn * 2 + rows * self.bs * self.bs * 2)
        lists = -(-(columns * 6 + -(-columns // slabs) * 8 + 32) // 16) * 16
        fixed = 4 * self.bs * bn * 2 + lists
        deep = min(8, (232448 - 512 - fixed - 2048) // stage)
        facts = dict(DTYPE=0, BS=self.bs, B_COL=0, C_COL=int(self.c_col), WIDE=1, BN=bn, SC=slabs, STAGES=deep, DEAL=deal)
        return self.launcher(
            "wgmma_swapab", facts, 384, deep * stage + fixed + 1024, min(132, -(-(self.m // self.bs) // rows) * -(-self.n // bn)),
            lambda c, o: [
                self.values.data_ptr(), self.panels(self.bs, bn),
                self.c_map(c, self.bs), *self.indices(o), self.m, self.n, columns,
            ],
            [P, None, None, P, P, P, I, I, I], rows if grouped else 0,
        )  # fmt: skip

    def fill(self, bm, bn, slabs, together=8, deal=0):
        rows, columns, lines = bm // self.bs, -(-(self.k // self.bc) // slabs) * slabs, min(bm // 64, 2)
        resident = 3 - lines
        stage = slabs * self.bc * (bn * 2 + rows * self.bs * 2)
        fixed = lines * 8192 + -(-(columns * 6 + columns // slabs * lines * 4) // 16) * 16
        deep = min(8, ((232448 + 1024) // resident - 1024 - 512 - fixed - 2048) // stage)
        facts = dict(DTYPE=0, BS=self.bs, BC=self.bc, B_COL=0, C_COL=int(self.c_col), WIDE=1, BM=bm, BN=bn, SC=slabs, STAGES=deep, DEAL=deal)
        return self.launcher(
            "wgmma_fill", facts, 128 * (lines + 1), deep * stage + fixed + 1024,
            min(132 * resident, -(-(self.m // self.bs) // rows) * -(-self.n // bn)),
            lambda c, o: [
                self.values.data_ptr(), self.panels(self.bc, bn),
                self.c_map(c, self.bs), *self.indices(o), self.m, self.n, self.k // self.bc,
            ],
            [P, None, None, P, P, P, I, I, I], min(rows, together),
        )  # fmt: skip

    def rows(self, bn, bk, stages):
        """mma.sync, the kernel of chips before Hopper."""
        high = min(self.bs, 64)
        facts = dict(DTYPE=0, BS=self.bs, BC=self.bc, B_COL=0, BN=bn, BK=bk, STAGES=stages)
        return self.launcher(
            "mma_rows", facts, 256, stages * (high * (bk * 2 + 16) + bk * (bn * 2 + 16)), self.m // high * -(-self.n // bn),
            lambda c, o: [self.values.data_ptr(), self.b.data_ptr(), c.data_ptr(), *self.indices(o), self.m, self.n, self.k],
            [P, P, P, P, P, P, I, I, I], 0,
        )  # fmt: skip

    def simt(self, stages, bk):
        rows = min(self.bs, 64)
        columns = 128 // (rows // 8) * 8
        stage = (-(-(bk * (rows + 4)) // 32) * 32 + bk * columns) * 4
        b = tensor_map(self.b, [self.n, self.k], [self.n], [min(columns, 256), bk], 0)
        return self.launcher(
            "simt_f32", dict(DTYPE=2, BS=self.bs, BC=self.bs, BK=bk, STAGES=stages), 128, stages * stage,
            self.m // rows * -(-self.n // columns),
            lambda c, o: [self.values.data_ptr(), b, c.data_ptr(), *self.indices(o), self.m, self.n],
            [P, None, P, P, P, P, I, I], 0,
        )  # fmt: skip

    def tf32(self, bn, bk, stages):
        rows = min(self.bs, 64)
        return self.launcher(
            "mma_tf32", dict(DTYPE=2, BS=self.bs, BC=self.bs, BN=bn, BK=bk, STAGES=stages), 256, stages * (rows * (bk + 4) + bk * (bn + 8)) * 4,
            self.m // rows * -(-self.n // bn),
            lambda c, o: [self.values.data_ptr(), self.b.data_ptr(), c.data_ptr(), *self.indices(o), self.m, self.n],
            [P, P, P, P, P, P, I, I], 0,
        )  # fmt: skip

    def densify(self):
        wide, columns = 1024 // self.bc, self.k // self.bc
        entry = function("densify", dict(BS=self.bs, BC=self.bc, SIZE=2, WIDE=wide), 0)
        full, out = torch.empty_like(self.filled), self.poisoned()
        values = (self.values.data_ptr(), full.data_ptr(), self.row_ptr.data_ptr(), self.col_idx.data_ptr(), columns)

        def run():
            c = launch_config(self.m // self.bs * -(-columns // wide), 256, 0, [])
            checked(cu.cuLaunchKernelEx(c, entry, (values, (P, P, P, P, I)), 0))
            torch.mm(full, self.b, out=out)

        run.out, run.keep = out, full
        return run

    def ours(self):
        """The settings of the variants' spaces that won somewhere, by name."""
        self.kept = []
        if self.pattern == "tf32":
            bks = (16,) if self.bs == 16 else (16, 32)
            return {f"mma_tf32 BN={bn} BK={bk}": lambda bn=bn, bk=bk: self.tf32(bn, bk, 4 if bk == 16 else 3) for bn in (128, 256) for bk in bks}
        if self.dtype == torch.float32:
            settings = [(2, 16)] if self.bs == 16 else [(3, 16), (2, 16), (2, 32)]
            return {f"simt_f32 STAGES={s} BK={bk}": lambda s=s, bk=bk: self.simt(s, bk) for s, bk in settings}
        made = {}
        if self.pattern == "uniform" and self.nnz * self.bs * self.bc * 8 == self.m * self.k and not self.c_col:
            depths = [(bk, stages) for bk, stages in ((16, 4), (32, 4), (64, 3)) if self.bc % bk == 0]
            made = {f"mma_rows BN={bn} BK={bk}": lambda bn=bn, bk=bk, s=s: self.rows(bn, bk, s) for bn in (128, 256) for bk, s in depths}
        if min(self.bs, self.bc) < 64:
            slabs = 64 // self.bc
            if self.bs == self.bc:
                made |= {f"wgmma_pack CM={cm}": lambda cm=cm: self.pack(cm=cm) for cm in (1, 2)} if not self.c_col else {}
                counts = (slabs, slabs // 2)
                made |= {f"wgmma_swapab SC={sc} deal={d}": lambda sc=sc, d=d: self.swapab(256, sc, deal=d) for sc in counts for d in (0, 1)}
                made["wgmma_swapab as they come"] = lambda: self.swapab(256, slabs // 2, grouped=False)
            if self.nnz * self.bs * self.bc > 0.15 * self.m * self.k:
                made["densify"] = self.densify
            parts, tiles = 64 // self.bs, ((128, 256), (64, 128))
            dealt = [(2 * parts, 0), (2 * parts, 1), (parts, 0), (parts, 1), (0, 0)]
            return made | {
                f"wgmma_fill {t} together={r} deal={d}": lambda t=t, r=r, d=d: self.fill(*t, slabs, r, d) for t in tiles for r, d in dealt
            }
        shapes = [(2, 256, 1, 1), (2, 256, 2, 1), (4, 128, 1, 1), (1, 128, 1, 2), (2, 128, 1, 1), (1, 128, 1, 1), (1, 64, 1, 2)]
        return made | {
            f"wgmma_union {s} order={o}": lambda s=s, o=o: self.union(*s, order=o) for s in shapes for o in (0, 1)
        } | {"wgmma_union (2, 256, 1, 1) as they come": lambda: self.union(2, 256, grouped=False)} | {
            f"wgmma_union {s} queue": lambda s=s: self.union(*s, order=1, queue=1) for s in [(2, 256), (4, 128), (2, 128), (1, 128, 1, 2)]
        }  # fmt: skip


def race(contestants, rounds):
    """Name to (median, 10th, 90th percentile) in microseconds."""
    graphs = {}
    for name, run in contestants.items():
        try:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                run(), run()
            torch.cuda.synchronize()
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record(), run(), run(), end.record(), end.synchronize()
            count = int(max(3, min(40, 2 / max(begin.elapsed_time(end), 0.008))))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(count):
                    run()
            graph.replay()
            graphs[name] = (graph, count)
        except Exception as error:  # a rival that cannot run a shape is left out, and said so
            print(f"   {name}: {str(error)[:120]}")
    torch.cuda.synchronize()
    times = {name: [] for name in graphs}
    for _ in range(rounds):
        for name in random.sample(list(graphs), len(graphs)):
            graph, count = graphs[name]
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record(), graph.replay(), end.record(), end.synchronize()
            times[name].append(begin.elapsed_time(end) / count * 1e3)
    ordered = {name: sorted(t) for name, t in times.items()}
    return {name: (t[len(t) // 2], t[len(t) // 10], t[-1 - len(t) // 10]) for name, t in ordered.items()}


GRID = [(4096, 4096, 4096, bs, d, "uniform", torch.float16) for bs in (64, 128, 32, 16) for d in (0.125, 0.5, 0.25, 0.05, 0.01)]
GRID += [(4096, 4096, 256, 64, 0.125, "uniform", torch.float16)]
GRID += [(4096, 4096, 4096, 64, 0.125, pattern, torch.float16) for pattern in ("banded", "powerlaw", "skewed")]
GRID += [(4096, 4096, 4096, bs, 0.125, "skewed", torch.float16) for bs in (16, 32)]
GRID += [(8192, 8192, 8192, 64, 0.125, "uniform", torch.float16), (16384, 16384, 4096, 64, 0.125, "uniform", torch.float16)]
GRID += [(4096, 4096, 4096, bs, 0.125, pattern, torch.float32) for pattern in ("uniform", "tf32") for bs in (16, 32, 64, 128)]
# What is not square, and a column-major C.
GRID += [(4096, 4096, 4096, bs, 0.125, "uniform", torch.float16, dict(c_col=True)) for bs in (64, 16)]
GRID += [(4096, 4096, 4096, bs, 0.125, "uniform", torch.float16, dict(bc=bc)) for bs, bc in ((32, 64), (64, 32), (16, 64))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="points whose line holds this text")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=argparse.FileType("w"))
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, file=sys.stderr)
    for m, k, n, bs, density, pattern, dtype, *more in GRID:
        more = more[0] if more else {}
        blocks = f"{bs}x{more['bc']}" if "bc" in more else bs
        name = f"{m}x{k}x{n} bs={blocks} {density:g} {pattern} {str(dtype).split('.')[1]}{' c=col' if 'c_col' in more else ''}"
        if options.only not in name:
            continue
        started = time.time()
        s = Matrix(m, k, n, bs, density, pattern, dtype, **more)
        contestants, limit = {}, 1e-5 if dtype == torch.float32 and pattern != "tf32" else 1e-3
        for setting, make in s.ours().items():
            run = make()
            run()
            torch.cuda.synchronize()
            error = s.error(run.out)
            if not error < limit:
                raise SystemExit(f"{name}: {setting} is wrong: relative error {error}")
            contestants[setting] = run
        own = set(contestants)
        others = s.rivals()
        for who, run in others.items():
            if hasattr(run, "out"):
                run()
                torch.cuda.synchronize()
                if not s.error(run.out) < limit:
                    print(f"   {who} is wrong: relative error {s.error(run.out)}")
        times = race(contestants | others, options.rounds)
        best = min((t for name, t in times.items() if name in own), default=None)
        rival = min((t for name, t in times.items() if name not in own), default=None)
        for who, t in sorted(times.items(), key=lambda x: x[1]):
            print(f"   {who:45} {t[0]:9.1f} ({t[1]:.1f}-{t[2]:.1f}) us")
        rate = 2 * s.nnz * bs * s.bc * n / best[0] * 1e-6
        print(f"{name}: {best[0]:.1f} us, {rate:.0f} TFLOP/s, rival {rival[0]:.1f} us: {rival[0] / best[0]:.2f}x [{time.time() - started:.0f} s]")
        if options.json:
            options.json.write(json.dumps({"point": name, "nnz": s.nnz, "times": times}) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    np.random.seed(0)
    main()
