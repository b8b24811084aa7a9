"""tune_kernel: Kernel Tuner's calling form for kernels in C and CUDA."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

import warplap

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

SOURCE = """
void vector_add(float *c, const float *a, const float *b, int n) {
#if block_size == 96
#error "no blocks of 96"
#endif
#if block_size == 17
    *(volatile int *)8 = 1;
#endif
    for (int i = 0; i < n; i += block_size)
        for (int j = i; j < i + block_size && j < n; j++)
            c[j] = a[j] + b[j] + (block_size == 33);
}
"""


def problem(n=1000):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    return [np.zeros(n, np.float32), a, b, np.int32(n)], [a + b, None, None, None]


def test_the_calling_form_is_kernel_tuners(tmp_path):
    args, answer = problem()
    params = {"block_size": [16, 33, 64, 96, 128], "unroll": [1, 2]}
    results, env = warplap.tune_kernel(
        "vector_add", SOURCE, 1000, args, params, answer=answer, lang="C",
        restrictions=["block_size * unroll <= 128", lambda p: p["block_size"] != 128 or p["unroll"] == 1],
        metrics={"GB/s": lambda p: 12e-6 * 1000 / p["time"], "us": "time * 1000"},
        verbose=True, iterations=7, quiet=True,
    )  # fmt: skip
    assert all(r["us"] == r["time"] * 1000 and r["GB/s"] > 0 for r in results if isinstance(r["time"], float))
    assert len(results) == 8 and env["best"]["block_size"] in (16, 64, 128)
    by = {(r["block_size"], r["unroll"]): r["time"] for r in results}
    assert by[33, 1].startswith("wrong_answer") and "no blocks of 96" in by[96, 1]
    assert all(isinstance(t, float) and t > 0 for (bs, _), t in by.items() if bs in (16, 64, 128))
    assert [r["time"] for r in results[:5]] == sorted(r["time"] for r in results[:5])
    assert (args[0] == 0).all(), "the caller's arrays are not touched"
    _, again = warplap.tune_kernel(
        "vector_add", SOURCE, 1000, args, {"block_size": [16, 64], "unroll": [1]}, answer=answer
    )
    assert again["from_store"] or again["best"]["block_size"] in (16, 64)
    file = tmp_path / "kernel.c"
    file.write_text(SOURCE)
    results, _ = warplap.tune_kernel("vector_add", str(file), (1000,), args, {"block_size": [16, 64]})
    assert {r["block_size"] for r in results} == {16, 64}


def test_a_kernel_that_writes_where_it_may_not_does_not_harm_the_caller():
    args, answer = problem()
    results, env = warplap.tune_kernel("vector_add", SOURCE, 1000, args, {"block_size": [16, 17]}, answer=answer)
    assert env["best"] == {"block_size": 16}
    assert next(r for r in results if r["block_size"] == 17)["time"].startswith("crashed: ended its process with SIG")


CUDA = """
extern "C" __global__ void vector_add(float *c, const float *a, const float *b, int n) {
    for (int i = blockIdx.x * block_size_x * per + threadIdx.x, j = 0; j < per; j++, i += block_size_x)
        if (i < n) c[i] = a[i] + b[i] + (per == 3);
}
"""
PARAMS = {"block_size_x": [64, 128, 2048], "per": [1, 2, 3]}


def cuda(**more):
    args, answer = problem(100_000)
    answer = more.pop("answer", answer)
    return warplap.tune_kernel(
        "vector_add", CUDA, 100_000, args, PARAMS, answer=answer, grid_div_x=["block_size_x", "per"],
        restrictions=["block_size_x * per <= 8192"], budget=2.0, **more,
    )  # fmt: skip


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_cuda_kernels_are_tuned_on_the_gpu():
    results, env = cuda()
    by = {(r["block_size_x"], r["per"]): r["time"] for r in results}
    assert len(results) == 9 and env["best"]["per"] in (1, 2) and env["best"]["block_size_x"] < 2048
    assert by[64, 3].startswith("wrong_answer") and isinstance(by[64, 1], float) and isinstance(by[2048, 1], str)
    assert cuda()[1]["from_store"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("lang", [None, "CUDA", "cupy"])
def test_cuda_kernels_without_a_gpu_are_told_so(lang):
    with pytest.raises(NotImplementedError, match="(?i)cuda|nvidia|driver"):
        cuda(lang=lang)


def test_wrong_arguments_are_named():
    args, _ = problem(10)
    for error, match, call in [
        (NotImplementedError, "lang:", lambda: warplap.tune_kernel("k", SOURCE, 1, args, {"b": [1]}, lang="HIP")),
        (NotImplementedError, "cmem_args:", lambda: warplap.tune_kernel(
            "k", SOURCE, 1, args, {"b": [1]}, cmem_args={})),
        (ValueError, "answer:", lambda: cuda(answer=None)),
        (ValueError, "answer:", lambda: cuda(answer=[None] * 4)),
        (NotImplementedError, "restrictions:", lambda: warplap.tune_kernel(
            "k", CUDA, 1, args, {"b": [1]}, restrictions=lambda p: True)),
        (TypeError, "arguments:", lambda: warplap.tune_kernel("k", SOURCE, 1, [1.0], {"b": [1]})),
        (ValueError, "restrictions:", lambda: warplap.tune_kernel("k", "", 1, args, {"b": [1]}, restrictions="b > 9")),
        (ValueError, "rules:", lambda: warplap.tune_kernel("k", SOURCE, 1, args, {"b": [1]}, restrictions="c > 1")),
        (RuntimeError, "has no function nothing", lambda: warplap.tune_kernel(
            "nothing", SOURCE, 1, args, {"block_size": [16, 32]})),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            call()
