"""``--quantization warplap`` and ``warplap_bsr`` in vLLM's real engine, on the CPU: a tiny random Llama with the plugin
against the same one without, by the log-probabilities of prompts and answers. Compiled engines and several ranks run
with WARPLAP_LONG=1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

import torch

LONG = pytest.mark.skipif("WARPLAP_LONG" not in os.environ, reason="long: WARPLAP_LONG=1 runs it")
BLOCK, KEPT = 32, 0.2


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A checkpoint, and the same with most blocks of its linears zero."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.1, attention_bias=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        if name.endswith("proj.bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    places = [str(tmp_path_factory.mktemp("models") / name) for name in ("dense", "pruned")]
    model.save_pretrained(places[0])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("proj.weight"):
                n, k = parameter.shape
                mask = torch.rand(n // BLOCK, k // BLOCK) < KEPT
                parameter *= mask.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    model.save_pretrained(places[1])
    return places


def engine(*plans, store, **environment):
    """What the engine gives for each plan, all in one process."""
    env = {**os.environ, "WARPLAP_STORE": str(store), "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_NO_USAGE_STATS": "1"}
    env |= {"WARPLAP_VLLM_BUDGET": "0.3", **environment}
    env.setdefault("VLLM_CACHE_ROOT", str(Path(store).parent / "vllm-cache"))
    for name in ("WARPLAP_MODE", "WARPLAP_VLLM_MODE"):
        env.pop(name, None)
    script = Path(__file__).with_name("vllm_engine.py")
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(plans), capture_output=True, text=True, env=env, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stdout + done.stderr


def plan(model, quantization=None, plugged=True, **more):
    asked = {**more.pop("asked", {}), **({} if quantization is None else {"quantization": quantization})}
    return {"model": model, "plugged": plugged, "asked": asked, **more}


def same(found, expected, allowed=0.05):
    """Log-probabilities of 16-bit models agree as far as roundings do. Tokens may differ where two are near each other:
    then what follows is another text."""
    for ours, theirs, tokens, others in zip(
        found["logprobs"], expected["logprobs"], found["tokens"], expected["tokens"]
    ):
        common = next((i for i, (a, b) in enumerate(zip(tokens, others)) if a != b), len(tokens))
        length = len(theirs) - len(others) + common
        worst = max(abs(a - b) for a, b in zip(ours[:length], theirs[:length]))
        assert worst < allowed, (worst, ours, theirs)


@pytest.fixture(scope="module")
def plain(models, tmp_path_factory):
    """The engine without us."""
    store = tmp_path_factory.mktemp("plain") / "store"
    found, _ = engine(*(plan(model, plugged=False) for model in models), store=store)
    assert not store.exists()
    return found


def files(store):
    return {p: p.stat().st_mtime_ns for p in Path(store).rglob("*") if p.is_file()}


def test_a_dense_model_is_tuned_ahead_then_replayed_and_answers_alike(models, plain, tmp_path):
    dense, _ = models
    store = tmp_path / "store"
    few = {"max_num_batched_tokens": 128}
    (unknown, tuned), _ = engine(
        plan(dense, "warplap", look=True),
        plan(dense, "warplap", look=True, env={"WARPLAP_VLLM_MODE": "tune"}, asked=few, forget=True),
        store=store,
    )
    # Of nothing that is known nothing is taken over.
    assert set(unknown["seen"][0].values()) == {"left"}
    kept = files(store)
    assert any("gemm" in str(path) for path in kept)
    (replayed, forced), _ = engine(
        plan(dense, "warplap", look=True), plan(dense, "warplap", look=True, force=True), store=store
    )
    assert files(store) == kept, "a server that replays writes nothing"
    assert replayed["seen"] == tuned["seen"]
    assert set(forced["seen"][0].values()) == {"served"} and len(forced["seen"][0]) == 8
    for found in (unknown, tuned, replayed, forced):
        same(found, plain[0])
    # What was decided is part of what compiled graphs are kept by.
    assert plain[0]["hash"] != unknown["hash"] != forced["hash"]


def test_a_model_with_zero_blocks_is_block_sparse_and_answers_alike(models, plain, tmp_path):
    dense, pruned = models
    store = tmp_path / "store"
    (sparse, full), said = engine(
        plan(pruned, "warplap_bsr", look=True), plan(dense, "warplap_bsr", look=True), store=store
    )
    assert set(sparse["seen"][0].values()) == {"sparse"} and len(sparse["seen"][0]) == 8
    assert set(full["seen"][0].values()) == {"left"}
    assert "block-sparse: nothing is known of it" in said
    same(sparse, plain[1])
    same(full, plain[0])
    assert not files(store)
    assert len({plain[1]["hash"], sparse["hash"], full["hash"]}) == 3


def test_a_checkpoint_names_its_blocks_and_a_wrong_one_is_an_error(models, plain, tmp_path):
    import shutil

    for block, ends in ((32, True), (48, False)):
        model = tmp_path / f"named-{block}"
        shutil.copytree(models[1], model)
        config = json.loads((model / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "warplap_bsr", "block": block, "ignore": ["o_proj"]}
        (model / "config.json").write_text(json.dumps(config))
        if ends:
            (found,), _ = engine(plan(str(model), look=True), store=tmp_path / "store")
            kinds = found["seen"][0]
            assert sum(kind == "sparse" for kind in kinds.values()) == 6 and not any("o_proj" in n for n in kinds)
            same(found, plain[1])
        else:
            with pytest.raises(AssertionError, match="block is 48, expected one of"):
                engine(plan(str(model)), store=tmp_path / "store")


def test_routers_and_experts_are_left_to_vllm(tmp_path):
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, num_local_experts=4, num_experts_per_tok=2,
        initializer_range=0.1,
    )  # fmt: skip
    model = str(tmp_path / "experts")
    MixtralForCausalLM(config).to(torch.bfloat16).save_pretrained(model)
    (plain, forced), _ = engine(plan(model), plan(model, "warplap", look=True, force=True), store=tmp_path / "store")
    names = {name.rsplit(".", 1)[-1] for name in forced["seen"][0]}
    assert names == {"qkv_proj", "o_proj"} and set(forced["seen"][0].values()) == {"served"}
    same(forced, plain)


@pytest.mark.parametrize("harm", ["read-only", "a file"])
def test_a_store_that_cannot_be_used_does_not_end_the_server(models, plain, tmp_path, harm):
    store = tmp_path / "store"
    if harm == "a file":
        store.write_text("no store")
    else:
        store.mkdir(mode=0o500)
    (found,), _ = engine(plan(models[0], "warplap", look=True), store=store)
    same(found, plain[0])


@LONG
def test_compiled_engines_and_those_in_processes_of_their_own_answer_alike(models, tmp_path):
    compiled = {"enforce_eager": False}
    cache = {"VLLM_CACHE_ROOT": str(tmp_path / "compiled")}
    (plain,), _ = engine(plan(models[1], plugged=False, asked=compiled), store=tmp_path / "none", **cache)
    (sparse, forced), _ = engine(
        plan(models[1], "warplap_bsr", look=True, asked=compiled),
        plan(models[1], "warplap", look=True, asked=compiled, force=True),
        store=tmp_path / "store", **cache,
    )  # fmt: skip
    same(sparse, plain)
    same(forced, plain)
    # Once more from vLLM's cache of compiled graphs, and with another decision for the same model.
    (again, left), _ = engine(
        plan(models[1], "warplap_bsr", look=True, asked=compiled), plan(models[1], "warplap", asked=compiled),
        store=tmp_path / "store", **cache,
    )  # fmt: skip
    same(again, plain)
    same(left, plain)
    (apart,), _ = engine(plan(models[1], "warplap_bsr"), store=tmp_path / "store", VLLM_ENABLE_V1_MULTIPROCESSING="1")
    same(apart, plain)


@LONG
@pytest.mark.parametrize("quantization", ["warplap", "warplap_bsr"])
def test_two_ranks_share_the_work_and_answer_alike(models, plain, tmp_path, quantization):
    two = {"tensor_parallel_size": 2}
    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    asked = plan(models[1], quantization, asked=two)
    (found,), _ = engine(asked, store=tmp_path / "store", **own)
    same(found, plain[1])
    (tuned,), _ = engine({**asked, "env": {"WARPLAP_VLLM_MODE": "tune"}}, store=tmp_path / "store", **own)
    same(tuned, plain[1])
    kept = files(tmp_path / "store")
    (replayed,), _ = engine(asked, store=tmp_path / "store", **own)
    same(replayed, plain[1])
    assert kept and files(tmp_path / "store") == kept
