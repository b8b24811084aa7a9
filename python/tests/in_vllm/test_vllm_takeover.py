"""vLLM's own tuned Triton kernels, taken over: real vLLM and its Mamba2 kernels, in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("vllm")
pytest.importorskip("triton")

# A build of vLLM for CPUs switches Triton off by its package's name; an empty list of devices is what vLLM takes for a
# worker that will get its GPU later, and so leaves Triton on.
HEAD = """
import importlib.metadata, json, logging, os, sys
version = importlib.metadata.version
importlib.metadata.version = lambda name: "0.26.0" if name == "vllm" else version(name)
import torch, triton, triton.language as tl
import warplap, warplap.vllm
from triton.runtime.autotuner import Autotuner as Plain
warplap.configure(store=sys.argv[1], budget=1.0)
said = []
catcher = logging.Handler()
catcher.emit = lambda record: said.append(record.getMessage())
logging.getLogger("warplap").addHandler(catcher)
logging.getLogger("warplap").setLevel("INFO")
torch.manual_seed(3)
report = {}

def passing():
    from vllm.model_executor.layers.mamba.ops import ssd_state_passing
    return ssd_state_passing

# What one step of vLLM's Mamba2 does between chunks, and what it must give.
def step(dim, value=1.0):
    states, decay = value * torch.randn(3, 2, dim), -torch.rand(2, 3, 4)
    last = torch.tensor([0, 2], dtype=torch.int32)
    out = passing()._state_passing_fwd(states, decay, last)
    right = states.clone()
    right[2] += torch.exp(decay[:, 1 + 1, -1])[:, None] * states[1]
    assert torch.allclose(out, right, atol=1e-5), (out - right).abs().max()

launched, timed = [], []

# Triton's own clock wants a GPU.
def watch(kernel, spoil=lambda block, out: None):
    kernel._do_bench = lambda call, quantiles: (timed.append(1), call(), [1.0, 1.0, 1.0])[2]
    real = getattr(kernel.fn, "really", kernel.fn.run)
    def run(*args, **named):
        launched.append(named["BLOCK_SIZE"])
        real(*args, **named)
        spoil(named["BLOCK_SIZE"], named["out_ptr"])
    kernel.fn.really, kernel.fn.run = real, run
    kernel.cache.clear()

def why(kernel):
    trials = kernel.last["edition"]["trials"]
    return {t["config"]["BLOCK_SIZE"]: (t.get("rejected") or {}).get("why") for t in trials}
"""


def program(folder, body, **environment):
    """What a process says that runs vLLM's kernels in Triton's interpreter: one JSON object, on its last line."""
    file = folder / "program.py"
    file.write_text(HEAD + textwrap.dedent(body) + "\nprint()\nprint(json.dumps(report))\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("WARPLAP_")}
    env |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "WARPLAP_VLLM_TRITON": "1", **environment}
    done = subprocess.run([sys.executable, file, folder / "store"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """What a process found that was let tune, and the bundle it left behind."""
    folder = tmp_path_factory.mktemp("tuned")
    body = """
        from warplap.vllm import register
        register()
        import vllm.model_executor.layers.mamba.ops.ssd_state_passing
        kernel = passing()._state_passing_fwd_kernel
        nan = float("nan")

        watch(kernel, lambda block, out: out[0].fill_(nan) if block == 256 else None)
        step(96)
        report["one"] = why(kernel), kernel.best_config.kwargs["BLOCK_SIZE"], kernel.last["from_store"]
        report["export"] = warplap.store.export(sys.argv[1] + ".bundle")

        watch(kernel, lambda block, out: out[0].fill_(nan) if block == 64 else None)
        step(97)
        report["first"] = why(kernel), kernel.best_config.kwargs["BLOCK_SIZE"]

        watch(kernel, lambda block, out: out[0].fill_(nan) if block <= 512 else None)
        step(98)
        report["many"] = why(kernel), kernel.best_config.kwargs["BLOCK_SIZE"]

        watch(kernel, lambda block, out: out.add_(1) if block == 64 else None)
        step(99)
        report["finite"] = why(kernel), kernel.best_config.kwargs["BLOCK_SIZE"]

        # Nobody agrees with anybody: nothing can be proved, and Triton answers as it always did.
        records, before = len(warplap.store.ls()), len(timed)
        watch(kernel, lambda block, out: out.add_(block) if launched and not timed else None)
        del timed[:]
        step(100)
        report["none"] = len(warplap.store.ls()) - records, len(timed)
        report["said"] = said
    """
    return folder, program(folder, body, WARPLAP_VLLM_MODE="tune")


def rejected(why):
    return {int(block) for block, word in why.items() if word == "wrong_answer"}


def test_a_config_that_leaves_rows_of_nan_is_found_by_the_proof(kept):
    why, best, from_store = kept[1]["one"]
    assert len(why) == 6 and rejected(why) == {256} and best != 256
    assert not from_store


def test_a_wrong_first_config_does_not_make_the_right_ones_wrong(kept):
    why, best = kept[1]["first"]
    assert rejected(why) == {64} and best != 64
    why, best = kept[1]["finite"]
    assert rejected(why) == {64} and best != 64
    assert any("BLOCK_SIZE': 64" in line and "another answer" in line for line in kept[1]["said"])


def test_those_that_are_wrong_alike_do_not_outvote_finite_answers(kept):
    why, best = kept[1]["many"]
    assert rejected(why) == {64, 128, 256, 512} and best in (1024, 2048)


def test_where_no_two_agree_triton_tunes_as_ever_and_nothing_is_kept(kept):
    records, timed = kept[1]["none"]
    assert records == 0 and timed == 6
    assert any("no two of 6 configs leave the same answer" in line for line in kept[1]["said"])


def test_a_bundle_is_proved_once_and_then_replayed_and_nothing_is_measured(kept, tmp_path):
    folder, tuned = kept
    assert tuned["export"] == 1
    body = f"""
        # The kernel is there before the plugin is: it is changed for ours where it lies.
        kernel = passing()._state_passing_fwd_kernel
        assert type(kernel) is Plain
        report["import"] = warplap.store.import_({str(folder / "store.bundle")!r})
        warplap.vllm.register(), warplap.vllm.register()
        kernel = passing()._state_passing_fwd_kernel
        report["type"] = type(kernel).__name__
        watch(kernel)
        # A winner from elsewhere that was not proved here is not used while nothing may be proved either.
        step(96); step(96)
        report["unproved"] = len(timed), len(launched), kernel.last is None
        os.environ["WARPLAP_VLLM_MODE"] = "tune"
        watch(kernel)
        kernel._left.clear()
        del timed[:], launched[:]
        step(96); step(96)
        report["proved"] = len(timed), len(launched), kernel.last["from_store"], kernel.best_config.kwargs["BLOCK_SIZE"]
    """
    report = program(tmp_path, body)
    assert report["import"] == [1, 0, 0] and report["type"] == "Taken"
    assert report["unproved"] == [6, 6 + 2, True]
    timed, launched, from_store, block = report["proved"]
    assert timed == 0 and launched < 40 and from_store and block == tuned["one"][1]
    body = """
        warplap.vllm.register()
        bundle = json.dumps(warplap.store.ls())
        kernel = passing()._state_passing_fwd_kernel
        watch(kernel)
        step(96); step(96)
        report["launched"], report["timed"], report["from_store"] = launched[:], len(timed), kernel.last["from_store"]
        # What is not in the bundle is tuned by Triton, and stays with it.
        step(60); step(60)
        report["unknown"] = len(timed), len(launched)
        report["same"] = bundle == json.dumps(warplap.store.ls())
    """
    report = program(tmp_path, body)
    assert report["launched"] == [tuned["one"][1]] * 2 and report["timed"] == 0 and report["from_store"]
    assert report["unknown"] == [6, 2 + 6 + 2] and report["same"]


def test_it_is_asked_for_and_leaves_other_peoples_kernels_alone(tmp_path):
    body = """
        from warplap.vllm import takeover
        import vllm.model_executor.layers.mamba.ops as ops
        def configs():
            return [triton.Config({"BLOCK": b}) for b in (16, 32)]
        def mine(x, n, BLOCK: tl.constexpr):
            tl.store(x + tl.arange(0, BLOCK), 1.0)
        usual, states = triton.autotune, passing()
        early = ops.of_a_user = triton.autotune(configs(), key=["n"])(triton.jit(mine))
        for name, value in (("WARPLAP_VLLM_TRITON", "0"), ("VLLM_TRITON_FORCE_FIRST_CONFIG", "1"),
                            ("WARPLAP_VLLM_MODE", "loud")):
            before = os.environ.get(name)
            os.environ[name] = value
            try:
                takeover.begin()
            except ValueError as error:
                report["loud"] = str(error)
            assert triton.autotune is usual and type(states._state_passing_fwd_kernel) is Plain, name
            os.environ.pop(name) if before is None else os.environ.__setitem__(name, before)

        import vllm.triton_utils
        vllm.triton_utils.HAS_TRITON = False
        takeover.begin()
        assert triton.autotune is usual
        vllm.triton_utils.HAS_TRITON = True

        takeover.begin()
        once = triton.autotune
        takeover.begin()
        assert triton.autotune is once and type(states._state_passing_fwd_kernel) is not Plain
        late = triton.autotune(configs(), key=["n"])(triton.jit(mine))
        assert type(early) is type(late) is type(ops.of_a_user) is Plain
        from vllm.model_executor.layers.mamba.ops import ssd_bmm, ssd_chunk_scan, ssd_chunk_state
        report["types"] = {type(value).__name__ for module in (ssd_bmm, ssd_chunk_scan, ssd_chunk_state)
                          for value in vars(module).values() if isinstance(value, Plain)}.pop()
        from vllm.third_party.flash_linear_attention.ops import l2norm, wy_fast
        kernels = [value for module in (l2norm, wy_fast) for value in vars(module).values()]
        inner = [getattr(value, "fn", None) for value in kernels]
        report["behind"] = sorted({type(v).__name__ for v in (*kernels, *inner) if isinstance(v, Plain)})
        report["said"] = said
    """
    report = program(tmp_path, body)
    assert report["loud"] == "WARPLAP_VLLM_MODE: is 'loud', expected replay or tune"
    assert report["types"] == "Taken" and report["behind"] == ["Taken"]
    assert any("VLLM_TRITON_FORCE_FIRST_CONFIG" in line for line in report["said"])


def test_the_whole_of_mamba2_is_raced_and_a_miscompiled_first_config_of_its_scan_is_found(tmp_path):
    body = """
        warplap.configure(budget=0.3)
        warplap.vllm.register()
        from vllm.model_executor.layers.mamba.ops import ssd_bmm, ssd_chunk_scan, ssd_chunk_state
        from vllm.model_executor.layers.mamba.ops.ssd_combined import mamba_chunk_scan_combined_varlen
        length, heads, d, n = 24, 2, 16, 16
        x, dt = torch.randn(length, heads, d), torch.rand(length, heads)
        a, skip = -torch.rand(heads), torch.randn(heads)
        b, c = torch.randn(length, 1, n), torch.randn(length, 1, n)
        whole = lambda *values: torch.tensor(values, dtype=torch.int32)
        scan = ssd_chunk_scan._chunk_scan_fwd_kernel
        first, real = scan.configs[0], scan.fn.run
        def run(*args, **named):
            real(*args, **named)
            if all(named[k] == v for k, v in first.all_kwargs().items() if k in named):
                named["out_ptr"][3].fill_(float("nan"))
        scan.fn.run = run
        out = torch.empty(length, heads, d)
        mamba_chunk_scan_combined_varlen(
            x, dt, a, b, c, chunk_size=16, cu_seqlens=whole(0, length), cu_chunk_seqlens=whole(0, 16, length),
            last_chunk_indices=whole(1), seq_idx=whole(0, 0), out=out, D=skip,
        )
        state = torch.zeros(heads, d, n)
        for i in range(length):
            state = state * torch.exp(dt[i] * a)[:, None, None] + (dt[i][:, None] * x[i])[..., None] * b[i, 0]
            right = (state * c[i, 0]).sum(-1) + skip[:, None] * x[i]
            assert torch.allclose(out[i], right, atol=1e-4), i
        report["raced"] = {}
        for module in (ssd_bmm, ssd_chunk_scan, ssd_chunk_state, passing()):
            for name, kernel in vars(module).items():
                if isinstance(kernel, Plain):
                    trials = kernel.last["edition"]["trials"]
                    wrong = [t["config"] for t in trials if (t.get("rejected") or {}).get("why") == "wrong_answer"]
                    report["raced"][name] = [len(kernel.configs) - len(trials), wrong]
        report["first"] = first.all_kwargs()
    """
    report = program(tmp_path, body, WARPLAP_VLLM_MODE="tune")
    raced = report["raced"]
    assert len(raced) == 5 and all(left == 0 for left, _ in raced.values())
    (wrong,) = raced.pop("_chunk_scan_fwd_kernel")[1]
    assert {k: str(v) for k, v in wrong.items()} == {k: str(v) for k, v in report["first"].items()}
    assert all(wrong == [] for _, wrong in raced.values())
