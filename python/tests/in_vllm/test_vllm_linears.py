"""``--quantization warplap`` and ``warplap_bsr`` in vLLM's real engine, on the CPU: a tiny random Llama with the plugin
against the same one without, by the log-probabilities of prompts and answers. Compiled engines, several ranks and
stores that cannot be used run with WARPLAP_LONG=1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

import torch

LONG = pytest.mark.skipif("WARPLAP_LONG" not in os.environ, reason="long: WARPLAP_LONG=1 runs it")
BLOCK, KEPT = 32, 0.2
SIZES = dict(
    vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.1,
)  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A checkpoint, the same with most blocks of its linears zero, two that name their blocks, and one of experts."""
    from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    model = LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True)).to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        if name.endswith("proj.bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder / "dense")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("proj.weight"):
                n, k = parameter.shape
                count = n * k // BLOCK**2
                mask = (torch.randperm(count) < KEPT * count).view(n // BLOCK, k // BLOCK)
                parameter *= mask.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    model.save_pretrained(folder / "pruned")
    for block in (32, 48):
        shutil.copytree(folder / "pruned", folder / f"named-{block}")
        config = json.loads((folder / "pruned" / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "warplap_bsr", "block": block, "ignore": ["o_proj"]}
        (folder / f"named-{block}" / "config.json").write_text(json.dumps(config))
    experts = MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    MixtralForCausalLM(experts).to(torch.bfloat16).save_pretrained(folder / "experts")
    return {path.name: str(path) for path in folder.iterdir()}


def engine(plans, store, plugged=True, **environment):
    """What the engine gives for each plan, all in one process."""
    env = {**os.environ, "WARPLAP_STORE": str(store), "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_NO_USAGE_STATS": "1"}
    env |= {"WARPLAP_VLLM_BUDGET": "0.3", "VLLM_CACHE_ROOT": str(Path(store).parents[1] / "vllm-cache"), **environment}
    env |= {} if plugged else {"VLLM_PLUGINS": "none"}
    for name in ("WARPLAP_MODE", "WARPLAP_VLLM_MODE"):
        env.pop(name, None)
    script = Path(__file__).with_name("vllm_engine.py")
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(plans), capture_output=True, text=True, env=env, timeout=1200
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    reports = json.loads(done.stdout.strip().splitlines()[-1])
    return reports, done.stdout + done.stderr


def plan(model, quantization=None, **more):
    asked = {**more.pop("asked", {}), **({} if quantization is None else {"quantization": quantization})}
    return {"model": model, "asked": asked, **more}


def same(actual, expected, allowed=0.05):
    """Log-probabilities of 16-bit models agree as far as roundings do. Tokens may differ where two are near each other:
    then what follows is another text."""
    for ours, theirs, tokens, others in zip(
        actual["logprobs"], expected["logprobs"], actual["tokens"], expected["tokens"]
    ):
        common = next((i for i, (a, b) in enumerate(zip(tokens, others)) if a != b), len(tokens))
        length = len(theirs) - len(others) + common
        worst = max(abs(a - b) for a, b in zip(ours[:length], theirs[:length]))
        assert worst < allowed, (worst, ours, theirs)


@pytest.fixture(scope="module")
def plain(models, tmp_path_factory):
    """The engine without us."""
    names = ("dense", "pruned", "experts")
    store = tmp_path_factory.mktemp("plain") / "store"
    reports, _ = engine([plan(models[name]) for name in names], store, plugged=False)
    assert not store.exists()
    return dict(zip(names, reports))


@pytest.fixture(scope="module")
def plugged(models, tmp_path_factory):
    """The engine with us, all in one process: what each plan gives, by its name."""
    dense, pruned = models["dense"], models["pruned"]
    plans = {
        "unknown": plan(dense, "warplap"),
        "tuned": plan(dense, "warplap", env={"WARPLAP_VLLM_MODE": "tune"}),
        "replayed": plan(dense, "warplap"),
        "ours": plan(dense, "warplap", decide="ours"),
        "sparse": plan(pruned, "warplap_bsr"),
        "full": plan(dense, "warplap_bsr"),
        "named": plan(models["named-32"]),
        "wrong": plan(models["named-48"]),
        "experts": plan(models["experts"], "warplap", decide="ours"),
    }
    reports, said = engine(list(plans.values()), tmp_path_factory.mktemp("plugged") / "store")
    return {**dict(zip(plans, reports)), "said": said}


def kinds(report):
    return set(report["seen"].values())


def test_a_dense_model_is_tuned_ahead_then_replayed_and_answers_alike(plain, plugged):
    # Of nothing that is known nothing is taken over.
    assert kinds(plugged["unknown"]) == {"left"} and not plugged["unknown"]["kept"]
    tuned, replayed = plugged["tuned"], plugged["replayed"]
    assert any("gemm" in name for name in tuned["kept"])
    assert replayed["kept"] == tuned["kept"], "a server that replays writes nothing"
    assert replayed["seen"] == tuned["seen"] and replayed["hash"] == tuned["hash"]
    assert kinds(plugged["ours"]) == {"served"} and len(plugged["ours"]["seen"]) == 8
    for name in ("unknown", "tuned", "replayed", "ours"):
        same(plugged[name], plain["dense"])


def test_what_was_decided_is_part_of_what_compiled_graphs_are_kept_by(plain, plugged):
    names = ("unknown", "ours", "sparse", "full")
    assert len({plain["dense"]["hash"], plain["pruned"]["hash"], *(plugged[n]["hash"] for n in names)}) == 6


def test_a_model_with_zero_blocks_is_block_sparse_and_answers_alike(plain, plugged):
    assert kinds(plugged["sparse"]) == {"sparse"} and len(plugged["sparse"]["seen"]) == 8
    assert "block-sparse: nothing is known of it" in plugged["said"]
    same(plugged["sparse"], plain["pruned"])
    assert "sparse" not in kinds(plugged["full"])
    same(plugged["full"], plain["dense"])


def test_a_checkpoint_names_its_blocks_and_a_wrong_one_is_an_error(plain, plugged):
    seen = plugged["named"]["seen"]
    assert sum(kind == "sparse" for kind in seen.values()) == 6 and not any("o_proj" in name for name in seen)
    same(plugged["named"], plain["pruned"])
    assert "block is 48, expected one of [16, 32, 64, 128]" in plugged["wrong"]["error"]


def test_routers_and_experts_are_left_to_vllm(plain, plugged):
    seen = plugged["experts"]["seen"]
    assert {name.rsplit(".", 1)[-1] for name in seen} == {"qkv_proj", "o_proj"} and kinds(plugged["experts"]) == {
        "served"
    }
    same(plugged["experts"], plain["experts"])


@LONG
def test_adapters_find_their_layers(models, plain, tmp_path):
    lora = {"enable_lora": True, "max_lora_rank": 8}
    plans = [
        plan(models["dense"], "warplap", decide="ours", asked=lora),
        plan(models["pruned"], "warplap_bsr", asked=lora),
    ]
    (dense, sparse), _ = engine(plans, tmp_path / "kept")
    assert kinds(dense) == {"served"} and kinds(sparse) == {"sparse"}
    for report, model in ((dense, "dense"), (sparse, "pruned")):
        answers = [probabilities[-6:] for probabilities in plain[model]["logprobs"]]
        same(report, {**plain[model], "logprobs": answers})


def test_batch_invariance_routers_and_what_others_take_apart_are_left_alone(monkeypatch):
    from vllm.model_executor.layers.linear import ReplicatedLinear, UnquantizedLinearMethod
    from warplap.vllm import linears

    layer = ReplicatedLinear.__new__(ReplicatedLinear)
    config = linears.Dense(ignore=["o_proj"])
    monkeypatch.setattr(linears.Dense, "_method", lambda self: "ours")
    method = lambda name: config.get_quant_method(layer, f"model.layers.0.{name}")
    assert method("mlp.up_proj") == "ours" and config.get_quant_method(torch.nn.Linear(1, 1), "x") is None
    for name in ("mlp.gate", "self_attn.kv_b_proj", "self_attn.o_proj"):
        assert type(method(name)) is UnquantizedLinearMethod, name
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert type(method("mlp.up_proj")) is UnquantizedLinearMethod


@LONG
@pytest.mark.parametrize("harm", ["read-only", "a file"])
def test_a_store_that_cannot_be_used_does_not_end_the_server(models, plain, tmp_path, harm):
    store = tmp_path / "harmed"
    if harm == "a file":
        store.write_text("no store")
    else:
        store.mkdir(mode=0o500)
    for mode in ({}, {"WARPLAP_VLLM_MODE": "tune"}):
        (report,), _ = engine([plan(models["dense"], "warplap", env=mode)], store)
        same(report, plain["dense"])


@LONG
def test_compiled_engines_and_those_in_processes_of_their_own_answer_alike(models, tmp_path):
    model, compiled = models["pruned"], {"enforce_eager": False}
    (plain,), _ = engine([plan(model, asked=compiled)], tmp_path / "store", plugged=False)
    plans = [plan(model, "warplap_bsr", asked=compiled), plan(model, "warplap", asked=compiled, decide="ours")]
    # Then once more from vLLM's cache of compiled graphs, and with another decision for the same model.
    for last in (plans[1], plan(model, "warplap", asked=compiled)):
        for report in engine([plans[0], last], tmp_path / "store")[0]:
            same(report, plain)
    (apart,), _ = engine([plan(model, "warplap_bsr")], tmp_path / "store", VLLM_ENABLE_V1_MULTIPROCESSING="1")
    same(apart, plain)


@LONG
@pytest.mark.parametrize("quantization", ["warplap", "warplap_bsr"])
def test_two_ranks_share_the_work_and_answer_alike(models, plain, tmp_path, quantization):
    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    asked = plan(models["pruned"], quantization, asked={"tensor_parallel_size": 2})
    kept = {}
    for mode in ("replay", "tune", "replay"):
        (report,), _ = engine([{**asked, "env": {"WARPLAP_VLLM_MODE": mode}}], tmp_path / "shared", **own)
        same(report, plain["pruned"])
        assert mode == "tune" or report["kept"] == kept
        kept = report["kept"]
    assert kept
