"""tune_kernel: Kernel Tuner's calling form for kernels in C and CUDA."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tomllib
import torch

import warplap
from warplap.kernel_tuner import cuda_kernel, launch as kernel_tuner_launch

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


def test_restrictions_and_sources_may_be_callables_and_values_come_in_any_order():
    args, answer = problem()
    made = lambda setting: SOURCE.replace("block_size", str(setting["block_size"]))
    results, _ = warplap.tune_kernel(
        "vector_add", made, 1000, args, {"block_size": [128, 16, 64, 33], "unroll": [2, 1]}, lang="C", answer=answer,
        restrictions=[
            "block_size < 100", lambda block_size, unroll: block_size * unroll != 32, lambda **p: p["unroll"] > 0,
            lambda p: p["block_size"] != 33, (lambda unroll: unroll < 9, ["unroll"]),
        ],
    )  # fmt: skip
    assert sorted((r["block_size"], r["unroll"]) for r in results) == [(16, 1), (64, 1), (64, 2)]
    assert all(isinstance(r["time"], float) for r in results)


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


def written(
    folder, source=CUDA, roles=("out", "in", "in", "in"), rules=(), configs=None, answer=None, atol=None, **more
):
    """The spec of a kernel as it is handed over."""
    first = more.pop("first", {"block_size_x": 128, "per": 2})
    params = more.pop("params", PARAMS)
    launch = kernel_tuner_launch.Launch(
        more.pop("size", 1000),
        more.pop("div", (["block_size_x", "per"], None, None)),
        None,
        more.pop("smem", None),
        params,
    )
    kernel = cuda_kernel.Kernel("vector_add", source, ["-lineinfo"], params, launch, more.pop("constants", None))
    args = more.pop("args", problem(1000)[0])
    path = kernel.write(str(folder), args, roles, answer, first, None if rules is None else list(rules), configs, atol)
    return tomllib.loads(Path(path).read_text())


def test_a_cuda_kernel_is_handed_over_as_a_spec_file(tmp_path):
    args, answer = problem(1000)
    spec = written(tmp_path, rules=["per < 3"], answer=answer, atol=1e-3, smem={"size": "4 * per"})
    assert spec["axes"] == {"block_size_x": [128, 64, 2048], "per": [2, 1, 3]}, "what ran is the default"
    assert spec["rules"] == ["per < 3"] and spec["tolerance"] == {"relative": 1e-3}
    assert spec["flags"] == ["-lineinfo", "-Dblock_size_y=1", "-Dblock_size_z=1", "-Dkernel_tuner=1"]
    launch = {"grid": ["ceil(1000 / (int(block_size_x) * int(per)))"], "block": ["block_size_x", "1", "1"]}
    assert spec["launch"] == {**launch, "shared": "int(4 * per)"}
    named = [(a["name"], a["dtype"], a.get("role"), a.get("value"), a.get("file")) for a in spec["arguments"]]
    assert named == [
        ("a0", "f32", "out", None, None), ("a1", "f32", "in", None, "a1.npy"),
        ("a2", "f32", "in", None, "a2.npy"), ("a3", "i32", None, 1000, None),
    ]  # fmt: skip
    assert (np.load(tmp_path / "a1.npy") == args[1]).all() and (tmp_path / "kernel.cu").read_text() == CUDA
    assert spec["reference"] == {"file": "answer0.npy"} and (np.load(tmp_path / "answer0.npy") == answer[0]).all()


def test_without_an_answer_the_spec_has_no_reference_and_constants_have_their_name(tmp_path):
    args = [np.zeros((2, 3), np.uint32), np.arange(4, dtype=np.int32), np.uint32(2**32 - 1), np.int64(-5), np.uint8(7)]
    roles = ["inout", "out", "in", "in", "in"]
    weights = np.array([0.5, 2.0], np.float32)
    spec = written(
        tmp_path, "grid_size_x " + CUDA, roles, args=args, constants={"weights": weights, "bias": np.float64(3)}
    )
    assert "reference" not in spec and "tolerance" not in spec
    assert spec["derived"] == {"grid_size_x": spec["launch"]["grid"][0], "grid_size_y": "1", "grid_size_z": "1"}
    kinds = {a["name"]: (a["dtype"], a.get("role"), a.get("value", a.get("shape"))) for a in spec["arguments"]}
    assert kinds == {
        "a0": ("i32", "inout", [2, 3]), "a1": ("i32", "out", [4]), "a2": ("i32", None, -1), "a3": ("i64", None, -5),
        "a4": ("i32", None, 7), "weights": ("f32", "constant", [2]), "bias": ("f64", "constant", [1]),
    }  # fmt: skip
    assert (np.load(tmp_path / "weights.npy") == weights).all() and np.load(tmp_path / "a0.npy").dtype == np.int32
    for args in ([np.zeros(3, np.int64)], [np.zeros(3, np.complex64)], [np.float16(1)]):
        with pytest.raises(TypeError, match="arguments: holds"):
            written(tmp_path, args=args, roles=["in"])
    with pytest.raises(ValueError, match="answer: has the shape"):
        written(tmp_path, answer=[np.zeros(7), None, None, None])


def test_what_callables_say_is_listed_setting_by_setting(tmp_path):
    made = lambda setting: CUDA.replace("per == 3", "0" if setting["per"] < 3 else "1")
    configs = [{"block_size_x": b, "per": p} for b in (64, 128) for p in (1, 2, 3)]
    spec = written(
        tmp_path, made, rules=None, configs=configs, div=(lambda p: p["block_size_x"] * p["per"], None, None),
        smem={"size": lambda p: 4 * p["per"]},
    )  # fmt: skip
    assert spec["configs"] == "configs.csv" and "rules" not in spec
    assert spec["launch"] == {
        "grid": ["grid_size_x", "grid_size_y", "grid_size_z"], "block": ["block_size_x", "1", "1"],
        "shared": "warplap_shared",
    }  # fmt: skip
    head, *rows = (tmp_path / "configs.csv").read_text().splitlines()
    assert head == "block_size_x,per,grid_size_x,grid_size_y,grid_size_z,warplap_shared,warplap_source"
    assert rows[0] == "64,1,16,1,1,4,0" and rows[4] == "128,2,4,1,1,8,0" and rows[5] == "128,3,3,1,1,12,1"
    assert {axis: values[0] for axis, values in spec["axes"].items()} == {
        "block_size_x": 128, "per": 2, "grid_size_x": 4, "grid_size_y": 1, "grid_size_z": 1, "warplap_shared": 8,
        "warplap_source": 0,
    }  # fmt: skip
    text = (tmp_path / "kernel.cu").read_text()
    assert text.count("#if warplap_source ==") == 2 and text.count("__global__") == 2


def test_wrong_arguments_are_named():
    args, _ = problem(10)
    for error, match, call in [
        (NotImplementedError, "lang:", lambda: warplap.tune_kernel("k", SOURCE, 1, args, {"b": [1]}, lang="HIP")),
        (ValueError, "cmem_args:", lambda: warplap.tune_kernel(
            "k", SOURCE, 1, args, {"b": [1]}, cmem_args={"c": args[0]})),
        (NotImplementedError, "texmem_args:", lambda: cuda(texmem_args={"t": args[0]})),
        (NotImplementedError, "verify:", lambda: cuda(verify=lambda right, got, atol: True)),
        (NotImplementedError, "observers:", lambda: cuda(observers=[1])),
        (ValueError, "answer: has 1 entries", lambda: cuda(answer=[None])),
        (ValueError, "answer: holds no output", lambda: cuda(answer=[None] * 4)),
        (ValueError, "restrictions: leave no", lambda: warplap.tune_kernel(
            "k", CUDA, 1, args, {"b": [1]}, restrictions=lambda p: False)),
        (TypeError, "restrictions: holds a int", lambda: warplap.tune_kernel(
            "k", CUDA, 1, args, {"b": [1]}, restrictions=[7])),
        (TypeError, "arguments:", lambda: warplap.tune_kernel("k", SOURCE, 1, [1.0], {"b": [1]})),
        (ValueError, "restrictions:", lambda: warplap.tune_kernel("k", "", 1, args, {"b": [1]}, restrictions="b > 9")),
        (ValueError, "rules:", lambda: warplap.tune_kernel("k", SOURCE, 1, args, {"b": [1]}, restrictions="c > 1")),
        (RuntimeError, "has no function nothing", lambda: warplap.tune_kernel(
            "nothing", SOURCE, 1, args, {"block_size": [16, 32]})),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            call()
