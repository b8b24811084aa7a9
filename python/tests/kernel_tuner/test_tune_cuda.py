"""tune_kernel on CUDA with nothing but Kernel Tuner's arguments: on a GPU, and on the stand-in for its driver."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import warplap

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

HEAD = '''
import numpy as np
import warplap

ADD = """
//? kind=1 fault 700
//? kind=2 subtract
//? kind=4 does not compile
//? kind=5 nothing
//@ add
extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {}
"""
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
args = [a, b, np.zeros(1000, np.float32), np.int32(1000)]

def words(results, name="kind"):
    return {r[name]: "right" if isinstance(r["time"], float) else r["time"].split(":")[0] for r in results}
'''


@pytest.fixture
def script(standin, tmp_path):
    """Runs statements in a process that has the stand-in for a GPU."""

    def run(body):
        env = {**os.environ, "WARPLAP_STORE": str(tmp_path / "store")}
        order = [sys.executable, "-c", HEAD + textwrap.dedent(body)]
        done = subprocess.run(order, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]

    return run


def test_without_an_answer_settings_must_agree_with_the_first_that_runs(script):
    script("""
        params = {"block_size_x": [64, 128], "kind": [4, 1, 0, 2]}
        results, env = warplap.tune_kernel("add", ADD, 1000, args, params, budget=3.0)
        assert words(results) == {4: "does_not_build", 1: "crashed", 0: "right", 2: "wrong_answer"}, results
        assert env["roles"] == ["in", "in", "out", "in"] and env["best"]["kind"] == 0, env
        assert warplap.tune_kernel("add", ADD, 1000, args, params, budget=3.0)[1]["from_store"]
        try:
            warplap.tune_kernel("add", ADD, 1000, args, {"kind": [4, 1]})
        except RuntimeError as why:
            assert "add: none of 2 settings runs, with {'kind': 4}: " in str(why) and "says so itself" in str(why), why
        else:
            raise AssertionError("nothing can run")
        try:
            warplap.tune_kernel("add", ADD, 1000, args, {"kind": [5]})
        except ValueError as why:
            assert "arguments: add changes none of them" in str(why), why
        else:
            raise AssertionError("nothing is written")
    """)


def test_callables_are_asked_about_every_setting(script):
    script("""
        made = lambda p: ADD.replace("//@ add", f"// for {p['per']}\\n//? per=3 subtract\\n//@ add")
        results, env = warplap.tune_kernel(
            "add", made, lambda p: 1000 * p["per"], args, {"block_size_x": [128, 64], "per": [2, 1, 3]}, lang="CUDA",
            grid_div_x=lambda p: p["block_size_x"] * p["per"], smem_args={"size": lambda p: 4 * p["per"]}, budget=3.0,
            restrictions=lambda p: p["block_size_x"] * p["per"] != 384, answer=[None, None, a + b, None],
        )
        assert len(results) == 5 and set(env["best"]) == {"block_size_x", "per"}, (results, env)
        assert words(results, "per") == {1: "right", 2: "right", 3: "wrong_answer"}, results
    """)


def test_outputs_that_are_read_are_given_back_before_every_launch(script):
    script("""
        GATHER = "//? kind=2 nothing\\n//@ gather\\n__global__ void gather(const float *a, float *c, int n) {}"
        results, env = warplap.tune_kernel("gather", GATHER, 1000, [a, b, args[3]], {"kind": [0, 1, 2]}, budget=3.0)
        assert env["roles"] == ["in", "inout", "in"], env
        assert words(results) == {0: "right", 1: "right", 2: "wrong_answer"}, results
    """)


def test_constant_memory_is_filled_by_name(script):
    script("""
        WEIGH = "//# weights 8\\n//? kind=2 add\\n//@ weigh\\n__global__ void weigh(float *a, float *b, float *c) {}"
        more = dict(cmem_args={"weights": np.array([3.0, 5.0], np.float32)})
        c = warplap.run_kernel("weigh", WEIGH, 1000, args, {"kind": 0}, **more)[2]
        assert np.allclose(c, 3 * a + 5 * b)
        results, _ = warplap.tune_kernel("weigh", WEIGH, 1000, args, {"kind": [0, 1, 2]}, budget=3.0, **more)
        assert words(results) == {0: "right", 1: "right", 2: "wrong_answer"}, results
        try:
            warplap.run_kernel("weigh", WEIGH, 1000, args, {"kind": 0}, cmem_args={"nothing": np.zeros(1)})
        except RuntimeError as why:
            assert "nothing" in str(why), why
        else:
            raise AssertionError("there is no such global")
    """)


def drawn(n=100_000):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(n).astype(np.float32) for _ in range(2)]


BLOCKS = {"block_size_x": [64, 128, 256]}


def times(results, name="per"):
    return {r[name]: r["time"] for r in results}


@needs_gpu
def test_vector_add_needs_no_answer_cuda():
    a, b = drawn()
    source = """
    __global__ void vector_add(float *c, float *a, float *b, int n) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i] + (per == 3);
    }"""
    params = {**BLOCKS, "per": [1, 2, 3]}
    args = [np.zeros_like(a), a, b, np.int32(a.size)]
    results, env = warplap.tune_kernel("vector_add", source, a.size, args, params, budget=2.0)
    by = times(results)
    assert env["roles"] == ["out", "in", "in", "in"] and by[3].startswith("wrong_answer")
    assert isinstance(by[1], float) and isinstance(by[2], float) and (args[0] == 0).all()
    assert warplap.tune_kernel("vector_add", source, a.size, args, params, budget=2.0)[1]["from_store"]


@needs_gpu
@pytest.mark.parametrize("answered", [0, 1, 2])
def test_a_kernel_with_two_outputs_is_proved_by_both_cuda(answered):
    a, b = drawn()
    source = """
    __global__ void both(float *s, float *d, const float *a, const float *b, int n) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (i < n) { s[i] = a[i] + b[i]; d[i] = a[i] - b[i] + (per == 3); }
    }"""
    args = [np.zeros_like(a), np.ones_like(a), a, b, np.int32(a.size)]
    # What is written and has no answer is as the first setting leaves it.
    answer = [None, [a + b, None, None, None, None], [a + b, a - b, None, None, None]][answered]
    results, env = warplap.tune_kernel(
        "both", source, a.size, args, {**BLOCKS, "per": [1, 3]}, answer=answer, budget=2.0
    )
    assert env["roles"] == ["out", "out", "in", "in", "in"]
    assert times(results)[3].startswith("wrong_answer") and isinstance(times(results)[1], float)


@needs_gpu
def test_what_is_read_and_written_in_place_is_given_back_cuda():
    a, b = drawn()
    source = """
    __global__ void grow(float *x, float *y, int n) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (i < n) x[i] = 2 * x[i] + 1 + (per == 3);
        if (i > 0 && i < n - 1) y[i] = 7;
    }"""
    results, env = warplap.tune_kernel(
        "grow", source, a.size, [a, b, np.int32(a.size)], {**BLOCKS, "per": [1, 3]}, budget=2.0
    )
    assert env["roles"] == ["inout", "inout", "in"], "the ends of y are what they were"
    assert times(results)[3].startswith("wrong_answer") and isinstance(times(results)[1], float)


@needs_gpu
def test_constant_and_shared_memory_and_callables_are_tuned_cuda():
    a, b = drawn(65536)
    source = """
    __constant__ float weights[2];
    __global__ void turn(float *c, const float *a, const float *b) {
        extern __shared__ float held[];
        int at = blockIdx.x * block_size_x, i = threadIdx.x;
        held[i] = weights[0] * a[at + i] + weights[1] * b[at + i];
        __syncthreads();
        c[at + i] = held[i] + (per == 3) + 0 * grid_size_x;
    }"""
    results, env = warplap.tune_kernel(
        "turn", source, lambda p: a.size, [np.zeros_like(a), a, b], {**BLOCKS, "per": [1, 2, 3]}, budget=2.0,
        grid_div_x=lambda p: p["block_size_x"], restrictions=lambda p: p["per"] != 2 or p["block_size_x"] == 64,
        cmem_args={"weights": np.array([3, 5], np.float32)}, smem_args={"size": lambda p: 4 * p["block_size_x"]},
        answer=[3 * a + 5 * b, None, None],
    )  # fmt: skip
    assert len(results) == 7 and env["best"]["per"] in (1, 2)
    assert times(results)[3].startswith("wrong_answer") and isinstance(times(results)[1], float)


@needs_gpu
def test_a_callable_makes_the_source_cuda():
    a, b = drawn()
    made = lambda p: (
        f"""
    __global__ void add(float *c, const float *a, const float *b, int n) {{
        int i = blockIdx.x * {p["block_size_x"]} + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i] + {int(p["kind"] == "wrong")};
    }}"""
    )
    args, params = [np.zeros_like(a), a, b, np.int32(a.size)], {**BLOCKS, "kind": ["right", "wrong"]}
    results, env = warplap.tune_kernel("add", made, a.size, args, params, lang="CUDA", budget=2.0)
    by = times(results, "kind")
    assert by["wrong"].startswith("wrong_answer") and isinstance(by["right"], float) and env["best"]["kind"] == "right"


@needs_gpu
def test_a_first_setting_that_faults_is_passed_over_cuda():
    a, b = drawn()
    source = """
    __global__ void add(float *c, const float *a, const float *b, int n) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (per == 9) c[1ll << 40] = 1;
        if (i < n) c[i] = a[i] + b[i];
    }"""
    args = [np.zeros_like(a), a, b, np.int32(a.size)]
    results, env = warplap.tune_kernel("add", source, a.size, args, {"per": [9, 1], **BLOCKS}, budget=2.0)
    assert times(results)[9].startswith("crashed") and env["best"]["per"] == 1
    with pytest.raises(RuntimeError, match="add: none of 3 settings runs"):
        warplap.tune_kernel("add", source, a.size, args, {"per": [9], **BLOCKS}, budget=2.0)
    assert torch.ones(3, device="cuda").sum().item() == 3, "the context of this process lives"
