"""The CUDA kernels of `grouped` beside torch's grouped product and a loop of torch.mm, compiled and launched without
the package: every kernel is held to double precision first, then all are timed in turns.

    python lab/gpu/grouped_kernels.py --tokens 1,16,256,4096,16384 --seconds 120 --out grouped.json

Needs torch with CUDA on a Hopper GPU, and NVRTC as torch brings it. Ends with 1 where anything was wrong.
"""
import argparse
import ctypes
import functools
import glob
import hashlib
import importlib.util
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2] / "crates"
SOURCES = ROOT / "warplap-ops/src/grouped/cuda"
# Experts that kernels are compiled for: lists of fewer end in experts without rows.
EXPERTS = 128
MULTIPROCESSORS, SHARED = 132, 232448
# Name, columns of y, columns of x, experts, experts of a token.
MODELS = [
    ("Mixtral up", 28672, 4096, 8, 2), ("Mixtral down", 4096, 14336, 8, 2), ("Qwen3-30B up", 1536, 2048, 128, 8),
    ("Qwen3-30B down", 2048, 768, 128, 8), ("DeepSeek-V3 up /8", 4096, 7168, 32, 1),
]  # fmt: skip


# Kernels, as the twins in Rust plan them.


def up(size, step):
    return -(-size // step) * step


def stages(stage, beside, resident, most):
    room = (SHARED + 1024) // resident
    return min(most, (room - 1024 - 512 - beside - 8 * (EXPERTS + 1)) // stage)


def kernel(entry, name, defines, w_col, dtype, **more):
    facts = {"DTYPE": dtype, "W_COL": w_col, "EXPERTS": EXPERTS, **defines}
    return {"entry": entry, "name": name, "defines": facts, "w_col": w_col, "dtype": dtype, "cluster": 1, **more}


def lines(rows, flat, share):
    """Lines of one copy of an operand's part of a stage."""
    whole = up(rows, 64) // 64 % share == 0 if flat else rows % (8 * share) != 0
    return (64 if flat else rows) // (1 if whole else share)


def tiles(bm, bn, consumers, slots, cm, cn, queue=0, w_col=1, dtype=1, turns=False):
    panel = 64 if bn % 64 == 0 else 32 if bn % 32 == 0 else 16
    stage = bm * 128 + (bn * 128 if w_col else up(bn, 64) * 128)
    staged = consumers * slots * 64 * panel * 2 + 1024
    deep = stages(stage, staged, 1, 8)
    defines = {"BM": bm, "BN": bn, "SLOTS": slots, "CM": cm, "CN": cn, "GROUP": 16, "STAGES": deep}
    defines |= {"SHARED": deep * stage + staged} | ({} if turns else {"CONS": consumers, "QUEUE": queue})
    entry = "wgmma_turns" if turns else "wgmma_tiles"
    maps = {"x": lines(bm, False, cn), "w": lines(bn, not w_col, cm), "y": panel}
    name = f"{entry} {bm}x{bn} {cm}x{cn}" + (" queue" if queue else "")
    place = {"cluster": cm * cn, "tall": bm * cm, "wide": bn * cn, "resident": 1}
    place |= {"threads": 128 * (consumers + 1), "shared": defines["SHARED"], "maps": maps}
    return kernel(entry, name, defines, w_col, dtype, **place)


def by_turns(bm, bn, cm, cn, w_col=1, dtype=1):
    return tiles(bm, bn, 2, 2, cm, cn, 0, w_col, dtype, turns=True)


def thin(bw, bt, bk, split, resident, w_col=1, dtype=1):
    stage, turned = up((bw + bt) * bk * 2, 1024), up(bt * (bw * 2 + 16), 1024)
    beside = turned + (split - 1) * bw * bt * 4 + 1024
    deep = stages(stage, beside, resident, 12)
    if deep < 2:
        return None
    shared = deep * stage + beside
    defines = {"BW": bw, "BT": bt, "BK": bk, "STAGES": deep, "CONS": bw // 64}
    defines |= {"SPLIT": split, "CTAS": resident, "SHARED": shared}
    name = f"wgmma_thin {bw}x{bt} k{bk} split{split} x{resident}"
    place = {"cluster": split, "tall": bt, "wide": bw, "resident": resident}
    place["maps"] = {"x": bt, "w": bw if w_col else bk}
    return kernel("wgmma_thin", name, defines, w_col, dtype, threads=2 * bw + 32, shared=shared, **place)


def mma(bm, bn, bk, warps, deep, swap, w_col=1, dtype=1, odd=False):
    tile = lambda rows, turned: bk * (rows * 2 + 16) if turned else rows * (bk * 2 + 16)
    shared = deep * (tile(bm, swap and not w_col) + tile(bn, not swap and not w_col))
    vectors = {"VEC_X": 2, "VEC_W": 2, "VEC_Y": 0} if odd else {"VEC_X": 16, "VEC_W": 16, "VEC_Y": 1}
    defines = {"BM": bm, "BN": bn, "BK": bk, "WARPS": warps, "STAGES": deep, "SWAP": swap, "SHARED": shared, **vectors}
    place = {"tall": bn if swap else bm, "wide": bm if swap else bn, "threads": 32 * warps, "shared": shared}
    return kernel("mma_groups", f"mma_groups {bm}x{bn} swap{swap}", defines, w_col, dtype, **place)


def plain(entry, w_col=1, dtype=1):
    return kernel(entry, entry, {}, w_col, dtype, threads=256, shared=0)


SHAPES = ((128, 256, 2, 2), (128, 192, 2, 1), (256, 128, 2, 2))
TILES = [tiles(*shape, *how) for shape in SHAPES for how in ((1, 1), (1, 1, 1), (2, 1), (1, 2))]
TILES += [by_turns(*shape, *how) for shape in ((128, 128), (64, 256), (128, 160)) for how in ((1, 2), (1, 1), (2, 1))]
THIN = [
    thin(bw, bt, bk, split, resident)
    for bt in (8, 16, 32, 64, 128) for bw in (128, 64) for bk in (64, 128)
    for split in ((1, 2, 4) if bt <= 16 else (1,)) for resident in (2, 1)
]  # fmt: skip
THIN = [one for one in THIN if one]
OTHER = [
    tiles(128, 256, 2, 2, 1, 1, 1, w_col=0), tiles(128, 256, 2, 2, 2, 1, 0, w_col=0),
    tiles(128, 256, 2, 2, 1, 1, 1, dtype=0),
    by_turns(64, 256, 1, 1, w_col=0), by_turns(128, 128, 1, 2, w_col=0), by_turns(128, 128, 2, 1, dtype=0),
    thin(128, 16, 64, 1, 2, w_col=0), thin(64, 32, 128, 2, 2, w_col=0), thin(128, 16, 128, 1, 2, dtype=0),
    thin(128, 32, 64, 2, 2), thin(64, 64, 64, 4, 1), mma(128, 128, 32, 8, 3, 0), mma(128, 16, 64, 4, 3, 1),
    mma(64, 64, 64, 4, 3, 0, w_col=0), mma(128, 32, 64, 4, 2, 1, w_col=0), mma(64, 16, 64, 4, 3, 1, dtype=0),
    plain("reference"), plain("reference", w_col=0), plain("right"), plain("right", w_col=0), plain("right", dtype=0),
]  # fmt: skip
# For lines that begin anywhere.
ODD = [
    mma(64, 128, 32, 4, 3, 0, odd=True), mma(128, 32, 64, 4, 2, 1, odd=True),
    mma(64, 64, 64, 4, 2, 0, w_col=0, odd=True), mma(128, 16, 64, 4, 2, 1, w_col=0, odd=True), plain("reference"),
    plain("reference", w_col=0), plain("right"), plain("right", w_col=0),
]  # fmt: skip


# Compiling: a process for each, since NVRTC compiles one text at a time.


def text_of(name):
    found = [*SOURCES.rglob(name), *(ROOT / "warplap-cuda/cuh").rglob(name)]
    return found[0].read_text()


def nvrtc():
    beside = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
    return os.path.realpath(glob.glob(f"{beside}/nvidia/*/lib/libnvrtc.so*")[0])


def compile_here(entry, defines, path, library):
    lib, text = ctypes.CDLL(library), text_of(f"{entry}.cu")
    names, left = [], [text]
    while left:
        for name in re.findall(r'#include "([^"]+)"', left.pop()):
            if name not in names:
                names.append(name)
                left.append(text_of(name))
    strings = lambda all_: (ctypes.c_char_p * len(all_))(*[one.encode() for one in all_])
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    headers = strings([text_of(name) for name in names])
    what = text.encode(), entry.encode(), len(names), headers, strings(names)
    assert lib.nvrtcCreateProgram(ctypes.byref(program), *what) == 0
    options = ["--gpu-architecture=sm_90a", "--std=c++17", *(f"-D{name}={value}" for name, value in defines.items())]
    if lib.nvrtcCompileProgram(program, len(options), strings(options)):
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        raise SystemExit(f"{entry} {defines}: {log.value.decode()}")
    lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, image)
    pathlib.Path(path).write_bytes(image.raw)


def compile_all(kernels, folder):
    library = nvrtc()
    env = {**os.environ, "LD_LIBRARY_PATH": f"{os.path.dirname(library)}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def one(it):
        what = json.dumps([it["entry"], it["defines"]], sort_keys=True)
        it["path"] = f"{folder}/{hashlib.sha1(what.encode()).hexdigest()}.cubin"
        if not os.path.exists(it["path"]):
            arguments = [it["entry"], json.dumps(it["defines"]), it["path"], library]
            subprocess.run([sys.executable, __file__, "--compile", *arguments], env=env, check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, kernels))


# Launching.


@functools.cache
def driver():
    return ctypes.CDLL("libcuda.so.1")


def ok(code, what):
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")


def load(it):
    module, it["function"] = ctypes.c_void_p(), ctypes.c_void_p()
    ok(driver().cuModuleLoadData(ctypes.byref(module), pathlib.Path(it["path"]).read_bytes()), it["name"])
    ok(driver().cuModuleGetFunction(ctypes.byref(it["function"]), module, it["entry"].encode()), it["name"])
    ok(driver().cuFuncSetAttribute(it["function"], 8, it["shared"]), f"shared memory of {it['name']}")


def tensor_map(address, inner, outer, box, swizzle, dtype):
    raw = ctypes.create_string_buffer(192)
    base = up(ctypes.addressof(raw), 64)
    sizes, pitch = (ctypes.c_uint64 * 2)(inner, outer), (ctypes.c_uint64 * 1)(inner * 2)
    box, ones = (ctypes.c_uint32 * 2)(*box), (ctypes.c_uint32 * 2)(1, 1)
    kind, promotion = 9 if dtype == 1 else 6, 3 if inner * 2 % 128 == 0 else 0
    where = ctypes.c_void_p(base), kind, 2, ctypes.c_void_p(address)
    how = 0, {32: 1, 64: 2, 128: 3}[swizzle], promotion, 0
    ok(driver().cuTensorMapEncodeTiled(*where, sizes, pitch, box, ones, *how), f"tensor map of {inner} by {outer}")
    return raw, base


def launcher(it, x, w, offsets, y, n, k, largest=None):
    """A function that launches a kernel; w lies as [experts, n, k] where it is column-major, else [experts, k, n]."""
    import torch

    rows, experts, keep, at = x.shape[0], w.shape[0], [], []

    def number(value, kind=ctypes.c_int32):
        keep.append(kind(value))
        at.append(ctypes.addressof(keep[-1]))

    def copied(tensor, inner, outer, box, swizzle):
        raw, base = tensor_map(tensor.data_ptr(), inner, outer, box, swizzle, it["dtype"])
        keep.append(raw)
        at.append(base)

    ragged = min(experts, rows)
    most = lambda: ((rows - ragged) // it["tall"] + ragged) * -(-n // it["wide"])
    if it["entry"].startswith("wgmma"):
        inner, each = (k, n) if it["w_col"] else (n, k)
        maps, cluster = it["maps"], it["cluster"]
        copied(x, k, rows, (64, maps["x"]), 128)
        copied(w, inner, experts * each, (64, maps["w"]), 128)
        if "y" in maps:
            copied(y, n, rows, (maps["y"], 64), maps["y"] * 2)
        for tensor in (offsets, y):
            number(tensor.data_ptr(), ctypes.c_uint64)
        for size in (rows, n, k):
            number(size)
        if it["entry"] == "wgmma_tiles":
            it.setdefault("queue", torch.zeros(2, dtype=torch.int32, device="cuda"))
            number(it["queue"].data_ptr(), ctypes.c_uint64)
        grid = min(most(), max(1, MULTIPROCESSORS * it["resident"] // cluster)) * cluster
    else:
        right = it["entry"] == "right"
        for tensor in (x, w, offsets, y, *([largest] if right else [])):
            number(tensor.data_ptr(), ctypes.c_uint64)
        for size in (rows, n, k):
            number(size, ctypes.c_uint64 if right else ctypes.c_int32)
        blocks = {"right": (rows // 64 + ragged + 1) * -(-n // 64), "reference": rows * -(-n // 256)}
        grid = blocks[it["entry"]] if it["entry"] in blocks else most()
    arguments = (ctypes.c_void_p * len(at))(*at)

    def launch():
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = grid, 1, 1, it["threads"], 1, 1, it["shared"], stream
        ok(driver().cuLaunchKernel(it["function"], *shape, arguments, None), it["name"])

    launch.keep = keep, x, w, offsets, y
    return launch


# Deals, and right answers.


def counts(kind, rows, experts):
    if kind == "even":
        return [rows // experts + (i < rows % experts) for i in range(experts)]
    if kind == "one":
        return [rows] + [0] * (experts - 1)
    harmonic = sum(1 / rank for rank in range(1, experts + 1))
    shares = [rows / (harmonic * rank) for rank in range(1, experts + 1)]
    deal = [int(share) for share in shares]
    for i in sorted(range(experts), key=lambda i: deal[i] - shares[i])[: rows - sum(deal)]:
        deal[i] += 1
    return deal


def ends(deal):
    sums = [sum(deal[: i + 1]) for i in range(len(deal))]
    return sums + sums[-1:] * (EXPERTS - len(sums))


def wrong_ones(kernels, rows, n, k, experts, kind, w_col, dtype, tail=0, bend=None):
    """How many kernels are wrong; `bend` makes ends that are none, which are taken as the nearest that are."""
    import torch

    kind_of = torch.bfloat16 if dtype == 1 else torch.float16
    x = torch.randn(rows, k, device="cuda").to(kind_of)
    w = torch.randn((experts, n, k) if w_col else (experts, k, n), device="cuda").to(kind_of)
    deal = counts(kind, rows - tail, experts)
    random.shuffle(deal)
    listed = ends(deal) if bend is None else bend(ends(deal))
    expected = torch.full((rows, n), float("nan"), dtype=torch.float64, device="cuda")
    begin = 0
    for e in range(experts):
        end = max(begin, min(listed[e], rows))
        expected[begin:end] = x[begin:end].double() @ (w[e].double().t() if w_col else w[e].double())
        begin = end
    somebodys, wrong = ~expected[:, 0].isnan(), 0
    offsets = torch.tensor(listed, dtype=torch.int32, device="cuda")
    for it in kernels:
        split = it["defines"].get("SPLIT", 1)
        if (it["w_col"], it["dtype"]) != (w_col, dtype) or -(-k // it["defines"].get("BK", 1)) < split:
            continue
        right = it["entry"] == "right"
        guarded = torch.full((rows * n + 512,), -77.0, dtype=torch.float64 if right else kind_of, device="cuda")
        y = guarded[256 : 256 + rows * n].view(rows, n)
        largest = torch.zeros(1, dtype=torch.int64, device="cuda")
        launcher(it, x, w, offsets, y, n, k, largest)()
        torch.cuda.synchronize()
        nobodys = y[~somebodys]
        untouched = bool((guarded[:256] == -77).all() and (guarded[256 + rows * n :] == -77).all())
        untouched &= bool(nobodys.isnan().all() if right else (nobodys == -77).all())
        off, value = (y[somebodys].double() - expected[somebodys]).abs(), expected[somebodys].abs()
        allowed = 1e-9 if right else value * 2.0 ** (-8 if dtype == 1 else -10) + 1e-4 * k**0.5
        if not untouched or not bool((off <= allowed).all()):
            wrong += 1
            problem = f"rows={rows} n={n} k={k} experts={experts} {kind} col={w_col}"
            print(f"WRONG {it['name']} {problem}: untouched {untouched}")
    return wrong


def proofs():
    wrong = 0
    for w_col, dtype in ((1, 1), (0, 1), (1, 0)):
        for problem in (
            (1, 8, 128, 1, "even"), (7, 64, 128, 3, "skewed"), (130, 200, 256, 5, "skewed"),
            (300, 1544, 384, 7, "even"), (333, 264, 2176, 128, "skewed"), (1000, 512, 640, 4, "one"),
            (2048, 776, 1024, 16, "skewed"), (4096, 1536, 2048, 128, "even"),
        ):  # fmt: skip
            wrong += wrong_ones(TILES + THIN + OTHER, *problem, w_col, dtype, tail=problem[0] % 10)
    bends = (
        lambda o: [-5, *o[1:]], lambda o: [o[0] + 90, *o[1:]], lambda o: [*o[:3], 2**31 - 1, *o[4:]],
        lambda o: [-(2**31)] * len(o), lambda o: [*o[:2], 0, *o[3:]],
    )  # fmt: skip
    for bend in bends:
        wrong += wrong_ones(TILES + THIN + OTHER, 333, 264, 512, 6, "even", 1, 1, 0, bend)
    for w_col in (0, 1):
        for problem in ((5, 9, 7, 3, "skewed"), (130, 97, 65, 5, "skewed"), (333, 83, 1101, 9, "even")):
            wrong += wrong_ones(ODD, *problem, w_col, 1, tail=problem[0] % 4)
    return wrong


# Times.


def graph_of(calls):
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def rounds(graphs, count, calls):
    """Seconds of a call, by name and round: all in turns, in random order."""
    import torch

    seconds, names = {name: [] for name in graphs}, list(graphs)
    for _ in range(count):
        random.shuffle(names)
        for name in names:
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            seconds[name].append(begin.elapsed_time(end) * 1e-3 / calls)
    return seconds


def candidates(rows, experts, busy, n, k):
    """What the spaces in Rust have for a problem."""
    pool = list(TILES) if rows >= 16 * experts else []
    mean = min(max(8, 1 << math.ceil(math.log2(max(rows / busy, 1)))), 64)
    few = busy * -(-n // 128) < 2 * MULTIPROCESSORS
    fits = lambda it: it["tall"] in (mean // 2, mean, 2 * mean) and (few or it["cluster"] == 1)
    deep = lambda it: -(-k // it["defines"]["BK"]) >= it["cluster"]
    return pool + [it for it in THIN if rows <= 128 * experts and fits(it) and deep(it)]


def point(name, tokens, kind, w, n, k, experts, each):
    import torch

    rows, turned = tokens * each, w.transpose(-2, -1)
    x = torch.randn(rows, k, device="cuda").bfloat16()
    y = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
    deal, deals = counts(kind, rows, experts), []
    for _ in range(8 if rows <= 2048 else 1):
        random.shuffle(deal)
        deals.append(ends(deal))
    lists = [torch.tensor(one, dtype=torch.int32, device="cuda") for one in deals]
    busy = sum(count > 0 for count in deal)
    floor = max(2 * rows * n * k / 790e12, 2 * (rows * k + rows * n + busy * n * k) / 4.3e12)

    def grouped(offsets):
        return torch._grouped_mm(x, turned, offs=offsets)

    def loop(listed):
        begin = 0
        for e, end in enumerate(listed[:experts]):
            if end > begin:
                torch.mm(x[begin:end], turned[e], out=y[begin:end])
                begin = end

    short = [one[:experts].contiguous() for one in lists]
    rivals = {"_grouped_mm": graph_of([functools.partial(grouped, one) for one in short])}
    rivals["loop"] = graph_of([functools.partial(loop, one) for one in deals])
    pool = candidates(rows, experts, busy, n, k)
    ours = {it["name"]: graph_of([launcher(it, x, w, one, y, n, k) for one in lists]) for it in pool}
    first = rounds(ours, 3, len(lists))
    best = sorted(first, key=lambda one: statistics.median(first[one]))[:4]
    seconds = rounds({**rivals, **{one: ours[one] for one in best}}, 13, len(lists))
    median = {one: statistics.median(all_) for one, all_ in seconds.items()}
    winner = min(best, key=median.get)
    rival = min(median["_grouped_mm"], median["loop"])
    told = " ".join(f"{what} {median[what] * 1e6:9.1f}" for what in ("_grouped_mm", "loop", winner))
    print(f"{name:18s} {tokens:6d} {kind:6s} floor {floor * 1e6:8.1f} {told} {rival / median[winner]:.2f}", flush=True)
    facts = {"model": name, "tokens": tokens, "rows": rows, "kind": kind, "busy": busy, "floor": floor}
    return {**facts, "median": median, "all": seconds, "best": winner, "rival": rival, "own": median[winner]}


def main():
    if sys.argv[1:2] == ["--compile"]:
        entry, defines, path, library = sys.argv[2:]
        return compile_here(entry, json.loads(defines), path, library)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1,16,256,4096,16384")
    parser.add_argument("--seconds", type=float, default=300, help="no point begins after that")
    parser.add_argument("--out", help="a file for everything that was measured")
    args = parser.parse_args()
    import torch

    begun, all_kernels, table = time.time(), TILES + THIN + OTHER + ODD, []
    random.seed(1), torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        compile_all(all_kernels, folder)
        for it in all_kernels:
            load(it)
    wrong = proofs()
    where = f"{torch.__version__}, {torch.cuda.get_device_name(0)}"
    print(f"{where}: {wrong} wrong after {time.time() - begun:.0f} s", flush=True)
    for name, n, k, experts, each in MODELS:
        w = torch.empty((experts, n, k), device="cuda", dtype=torch.bfloat16)
        for matrix in w:
            matrix.normal_()
        for tokens in map(int, args.tokens.split(",")):
            for kind in ("even", "skewed") if tokens > 1 else ("even",):
                if time.time() - begun < args.seconds:
                    table.append(point(name, tokens, kind, w, n, k, experts, each))
        del w
        torch.cuda.empty_cache()
    ratios = [row["rival"] / row["own"] for row in table]
    mean = statistics.geometric_mean(ratios)
    print(f"{len(table)} points, the better rival over ours: mean {mean:.3f}, least {min(ratios):.3f}")
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(table))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
