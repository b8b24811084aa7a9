"""run_kernel: one run with one setting, in Kernel Tuner's calling form. CUDA runs on a stand-in for the driver too."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

import warplap
from warplap.kernel_tuner import cuda_kernel, infer_outputs, launch as kernel_tuner_launch, run_once

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SOURCE = """
#include <stdint.h>
void scale(int64_t *y, const uint8_t *x, int n, double by) {
#if kind == 1
#error "not this one"
#endif
#if kind == 2
    *(volatile int *)8 = 1;
#endif
#if kind == 3
    for (volatile int i = 0; ; i++) ;
#endif
    for (int i = 0; i < n; i += step)
        for (int j = i; j < i + step && j < n; j++) y[j] = (int64_t)(x[j] * by);
}
"""


def bytes_and_longs():
    x = np.arange(100, dtype=np.uint8)
    return [np.full(100, -1, np.int64), x, np.int32(100), np.float64(2.0)]


@needs_cc
def test_a_kernel_in_c_gives_its_arguments_as_they_are_afterwards(tmp_path):
    args = bytes_and_longs()
    file = tmp_path / "scale.c"
    file.write_text(SOURCE)
    made = lambda setting: SOURCE.replace("step", str(setting["step"]))
    for source in (SOURCE, file, str(file), made):
        y, x, n, by = warplap.run_kernel("scale", source, 100, args, {"step": 7, "kind": 0}, lang="C")
        assert (y == 2 * np.arange(100)).all() and (x == args[1]).all() and (n, by) == (100, 2.0)
    assert (args[0] == -1).all(), "the caller's arrays are not touched"
    strided = np.arange(200, dtype=np.uint8)[::2]
    y, x, *_ = warplap.run_kernel("scale", SOURCE, 100, [args[0], strided, *args[2:]], {"step": 7, "kind": 0})
    assert (y == 2 * strided.astype(np.int64)).all() and (x == strided).all()


@needs_cc
def test_a_kernel_in_c_that_fails_says_how_and_harms_nobody(monkeypatch):
    monkeypatch.setattr(run_once, "PATIENCE", 0.5)
    for kind, said in [(1, "not this one"), (2, "crashed: .*SIG"), (3, "timed out")]:
        with pytest.raises(RuntimeError, match=f"scale: .*{said}"):
            warplap.run_kernel("scale", SOURCE, 100, bytes_and_longs(), {"step": 7, "kind": kind})


def test_wrong_arguments_are_named(tmp_path):
    run = lambda source="void k() {}", args=(), **more: warplap.run_kernel("k", source, 1, args, {"b": 1}, **more)
    for error, match, call in [
        (TypeError, "arguments: holds a float", lambda: run(args=[1.0])),
        (TypeError, "kernel_source:", lambda: run(source=7)),
        (NotImplementedError, "kernel_source: is a list", lambda: run(source=["a.cu", "b.cu"])),
        (FileNotFoundError, "kernel_source:", lambda: run(source="nowhere.cu")),
        (ValueError, "lang: is needed", lambda: run(source=lambda setting: "")),
        (NotImplementedError, "lang:", lambda: run(lang="HIP")),
        (NotImplementedError, "texmem_args:", lambda: run(texmem_args={"t": np.zeros(1)})),
        (ValueError, "cmem_args: is for kernels in CUDA", lambda: run(cmem_args={"t": np.zeros(1)})),
        (NotImplementedError, "smem_args: holds 'mode'", lambda: run(lang="CUDA", smem_args={"mode": 1})),
        (ValueError, "block_size_names:", lambda: run(lang="CUDA", block_size_names=list("abcd"))),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            call()


def test_a_launch_is_worked_out_as_kernel_tuner_does():
    launch = lambda size, div=(None,) * 3, names=None, smem=None, params=(): kernel_tuner_launch.Launch(
        size, div, names, smem, params
    )
    setting = {"block_size_x": 48, "block_size_y": 4, "tile": 3}
    usual = launch((100, 10), params=setting)
    assert usual.at(setting) == ([3, 3, 1], [48, 4, 1], 0)
    assert usual.expressions() == (["ceil(100 / (block_size_x))", "ceil(10 / (block_size_y))"], "0")
    assert usual.block() == ["block_size_x", "block_size_y", "1"]
    divided = launch("tile * 100", (["block_size_x/32", "tile"], [], None), smem={"size": "tile * 8"}, params=setting)
    assert divided.at(setting) == ([100, 1, 1], [48, 4, 1], 24)
    assert divided.expressions() == (["ceil(int(tile * 100) / (int(block_size_x/32) * int(tile)))"], "int(tile * 8)")
    asked = launch(lambda p: (p["tile"] * 7, 5), (lambda p: 2, None, None), smem={"size": lambda p: 16 * p["tile"]})
    assert asked.calls() and asked.at(setting) == ([11, 2, 1], [48, 4, 1], 48)
    named = launch(64, names=["tx"], params=["tx"])
    assert not named.calls() and named.at({"tx": 16}) == ([4, 1, 1], [16, 1, 1], 0)
    assert named.defines() == ["-Dblock_size_y=1", "-Dblock_size_z=1", "-Dkernel_tuner=1"]
    capitals = launch(64, params=["BLOCK_SIZE_X"])
    assert capitals.at({"BLOCK_SIZE_X": 32}).grid == [2, 1, 1]
    assert launch(64).at({}) == ([64, 1, 1], [256, 1, 1], 0)
    with pytest.raises(ValueError, match="grid_div_x: 'nothing' gives no number"):
        launch(64, (["nothing"], None, None)).at({})
    with pytest.raises(ValueError, match="problem_size: has 4 sizes"):
        launch((1, 2, 3, 4))


ADD = """
//? kind=1 fault 700
//? kind=2 die
//? kind=3 hang
//? kind=4 does not compile
//? kind=5 nothing
//@ add
extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""


def sums(n=1000):
    rng = np.random.default_rng(0)
    return [*(rng.standard_normal(n).astype(np.float32) for _ in range(2)), np.zeros(n, np.float32), np.int32(n)]


def kernel(source=ADD, name="add", size=1000, params=("block_size_x", "kind"), **more):
    launch = kernel_tuner_launch.Launch(size, (None,) * 3, None, None, params)
    return cuda_kernel.Kernel(name, source, [], {name: [0] for name in params}, launch, **more)


def test_a_cuda_kernel_runs_once_and_gives_its_arguments(standin):
    args = sums()
    a, b, c, n = warplap.run_kernel("add", ADD, 1000, args, {"block_size_x": 64, "kind": 0})
    assert (c == a + b).all() and (args[2] == 0).all() and n == 1000
    odd = [np.arange(7, dtype=np.uint8), np.array([1 + 2j]), np.int8(-3), np.zeros((0, 3))]
    back = warplap.run_kernel("add", ADD, 1, odd, {"kind": 5}, lang="CUDA")
    assert all((x == y).all() and x.dtype == y.dtype and np.shape(x) == np.shape(y) for x, y in zip(odd, back))


def test_a_cuda_kernel_that_fails_takes_its_process_and_no_other(standin):
    for kind, word, said in [
        (1, "crashed", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (2, "crashed", "SIGABRT"),
        (3, "timed_out", "did not end within"),
        (4, "does_not_build", "error: it says so itself"),
    ]:
        with pytest.raises(run_once.Failed, match=said) as why:
            kernel().run({"block_size_x": 64, "kind": kind}, sums(), patience=0.5, loud=False)
        assert why.value.why == word
    with pytest.raises(RuntimeError, match="add: crashed: .*ILLEGAL_ADDRESS"):
        warplap.run_kernel("add", ADD, 1000, sums(), {"block_size_x": 64, "kind": 1})


def test_what_a_cuda_kernel_writes_is_found_out_by_running_it(standin):
    settings = [{"block_size_x": 64, "kind": kind} for kind in (4, 1, 2, 0)]
    first, roles, left = infer_outputs.infer(kernel(), settings, sums())
    assert (first, roles) == (settings[3], ["in", "in", "out", "in"]) and (left[2] == left[0] + left[1]).all()
    with pytest.raises(run_once.Failed, match="none of 2 settings runs, with .*'kind': 4.*says so itself"):
        infer_outputs.infer(kernel(), settings[:2], sums())
    quiet = [{"block_size_x": 64, "kind": 5}]
    assert infer_outputs.infer(kernel(), quiet, sums())[:2] == (quiet[0], ["in"] * 4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_that_is_said():
    with pytest.raises(NotImplementedError, match="(?i)cuda"):
        warplap.run_kernel("add", ADD, 1000, sums(), {"block_size_x": 64, "kind": 0})


@needs_gpu
def test_a_kernel_runs_once_on_the_gpu_cuda():
    args = sums()
    a, b, c, _ = warplap.run_kernel("add", ADD, 1000, args, {"block_size_x": 64, "kind": 0})
    assert (c == a + b).all() and (args[2] == 0).all()
    bad = "__global__ void bad(float *c) { if (kind) c[1ll << 40] = 1; else while (*(volatile float *)c == 0) ; }"
    with pytest.raises(RuntimeError, match="bad: crashed: .*ILLEGAL_ADDRESS"):
        warplap.run_kernel("bad", bad, 1, [np.zeros(4, np.float32)], {"block_size_x": 32, "kind": 1})
    with pytest.raises(run_once.Failed, match="timed out"):
        kernel(bad, "bad").run({"kind": 0, "block_size_x": 1}, [np.zeros(4, np.float32)], patience=2.0, loud=False)
    with pytest.raises(RuntimeError, match="nonsense: .*error"):
        warplap.run_kernel("nonsense", "__global__ void nonsense() { oops }", 1, [], {"block_size_x": 32})
    assert torch.ones(3, device="cuda").sum().item() == 3, "the context of this process lives"


@needs_gpu
def test_constant_and_shared_memory_reach_a_kernel_that_runs_once_cuda():
    source = """
    __constant__ long long by[2];
    __global__ void turn(long long *y, unsigned char *x) {
        extern __shared__ long long held[];
        held[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = held[block_size_x - 1 - threadIdx.x] * by[0] + by[1] + grid_size_x;
    }"""
    x = np.arange(64, dtype=np.uint8)
    y, _ = warplap.run_kernel(
        "turn", source, 64, [np.zeros(64, np.int64), x], {"block_size_x": 64},
        cmem_args={"by": np.array([3, 5])}, smem_args={"size": "block_size_x * 8"},
    )  # fmt: skip
    assert (y == x[::-1].astype(np.int64) * 3 + 5 + 1).all()
