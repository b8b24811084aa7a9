"""The attention backend for vLLM: its decoding steps in the real engine on the CPU, and who answers which step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

import torch
from conftest import near

import warplap
from warplap.vllm import attention, register

ENGINE = """
import json, os, sys
model, backend = sys.argv[1:3]
import torch
torch.cpu._init_amx()  # nobody else asks the kernel for it before vLLM's own attention wants it
from vllm import LLM, SamplingParams
if backend != "usual":
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    register_backend(AttentionBackendEnum.CPU_ATTN, "vllm_decoding.Backend")
    import warplap.vllm
    warplap.vllm.register()
    assert warplap.mode() == "tune"  # nobody has asked for a part of ours yet
    from warplap.vllm import ir
    ir._find = lambda *_: True  # as if a record said that our norms are faster
llm = LLM(model, dtype="float32", max_model_len=128, max_num_seqs=8, skip_tokenizer_init=True, enforce_eager=True,
          seed=0, enable_prefix_caching=False, block_size=16,
          kernel_config={"ir_op_priority": {n: [sys.argv[3]] for n in ("rms_norm", "fused_add_rms_norm")}})
prompts = [[3, 17, 5, 99, 240, 7, 61, 12, 8, 33], [5, 6], list(range(2, 40))]
asked = SamplingParams(temperature=0.0, max_tokens=24, prompt_logprobs=0, logprobs=0, detokenize=False, ignore_eos=True)
report = {"tokens": [], "logprobs": []}
for output in llm.generate([{"prompt_token_ids": p} for p in prompts], asked, use_tqdm=False):
    report["tokens"].append(list(output.outputs[0].token_ids))
    steps = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
    report["logprobs"].append([next(iter(step.values())).logprob for step in steps])
if backend != "usual":
    import vllm_decoding
    assert warplap.mode() == "replay"
    report["calls"] = vllm_decoding.calls
    report["norms"] = sorted({asked[4] for asked in ir._won})
    report["kept"] = warplap.store.ls()
print()
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A tiny Llama with random weights; float32, so that both engines give the same tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("llama")
    config = LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=128, initializer_range=0.2, torch_dtype="float32",
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def engine(model, backend, norms, folder):
    file = folder / f"{backend}.py"
    file.write_text(ENGINE)
    env = {k: v for k, v in os.environ.items() if not k.startswith("WARPLAP_")}
    env |= {
        "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_PLUGINS": "none", "XDG_CACHE_HOME": str(folder / "cache" / backend),
    }  # fmt: skip
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, file, model, backend, norms], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_engine_says_the_same_with_our_decoding_and_norms(llama, tmp_path):
    usual, ours = engine(llama, "usual", "native", tmp_path), engine(llama, "ours", "warplap", tmp_path)
    assert ours["calls"]["decode"] >= 2 * 20 and ours["calls"]["torch"] >= 2
    assert ours["norms"] == [False, True] and ours["kept"] == []
    assert ours["tokens"] == usual["tokens"]
    for a, b in zip(usual["logprobs"], ours["logprobs"]):
        assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-4


def step(requests, heads, kv_heads, d, page, each, dtype, queries=1):
    """A cache as FlashAttention's lies on a GPU, and a step that decodes over it."""
    pages = requests * each + 3
    cache = torch.randn(pages, page, kv_heads, 2 * d).to(dtype).transpose(1, 2)
    table = torch.randperm(pages)[: requests * each].view(requests, each).int()
    lengths = torch.randint(queries, each * page + 1, (requests,)).int()
    query = torch.randn(requests * queries, heads, d).to(dtype)
    return cache, table, lengths, query


def right(cache, table, lengths, query, scale, queries=1, window=None, softcap=None):
    """By hand, in double precision."""
    lines, out = cache.transpose(1, 2).double(), []
    d = query.shape[-1]
    for i, length in enumerate(lengths.tolist()):
        line = lines[table[i].long()].flatten(0, 1)[:length]
        q = query[i * queries : (i + 1) * queries].double()
        group = q.shape[1] // line.shape[1]
        k, v = (t.repeat_interleave(group, 1) for t in (line[..., :d], line[..., d:]))
        scores = torch.einsum("qhd,khd->hqk", q, k) * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        away = torch.arange(length)[None] - (length - queries + torch.arange(queries))[:, None]
        hidden = (away > 0) | (away < -window if window else torch.zeros_like(away, dtype=torch.bool))
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        out.append(torch.einsum("hqk,khd->qhd", weights, v))
    return torch.cat(out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("options", [{}, {"window": 20}, {"softcap": 5.0}])
def test_keys_and_values_are_read_where_they_lie(dtype, queries, options, monkeypatch):
    cache, table, lengths, query = step(5, 8, 2, 32, 16, 4, dtype, queries)
    used = {int(p) for row, n in zip(table, lengths) for p in row[: -(-int(n) // 16)]}
    for page in set(range(cache.shape[0])) - used:
        cache[page] = float("nan")  # pages of nobody here
    pool, out = attention.pool_of(cache), torch.empty_like(query)
    assert pool.data_ptr() == cache.data_ptr()
    with warplap.replay():
        attention.decode(query, pool, table, lengths, out, queries=queries, scale=0.2, **options)
    expected = right(cache, table, lengths, query, 0.2, queries, **options)
    assert near(out, expected.to(dtype), 1e-4)


def test_a_cache_in_another_order_is_not_ours():
    assert attention.pool_of(torch.empty(4, 2, 16, 64)) is None
    assert attention.pool_of(torch.empty(4, 16, 2, 64).transpose(1, 2)) is not None
    assert attention.pool_of(torch.empty(4, 16, 1, 64).transpose(1, 2)) is not None


def test_it_is_registered_by_its_name_and_by_vllms():
    from vllm.config import AttentionConfig
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    register(), register()
    for name in ("custom", "WARPLAP"):
        backend = AttentionConfig(backend=name).backend
        assert backend is AttentionBackendEnum.CUSTOM and backend.get_class().__module__ == "warplap.vllm.flash"
    made = AttentionBackendEnum.CUSTOM.get_class()
    usual = AttentionBackendEnum.FLASH_ATTN.get_class()
    assert issubclass(made, usual) and made.get_builder_cls() is usual.get_builder_cls()
    assert made.get_kv_cache_shape(7, 16, 2, 64) == usual.get_kv_cache_shape(7, 16, 2, 64)
    assert issubclass(made.get_impl_cls(), usual.get_impl_cls()) and not made.supports_batch_invariance()


@pytest.fixture
def layer(monkeypatch):
    """A layer of the backend. FlashAttention itself runs on GPUs only: a formula stands in, and remembers its calls."""
    from vllm.config import VllmConfig, set_current_vllm_config

    from warplap.vllm import flash

    asked = []

    def forward(self, layer, query, key, value, kv_cache, about, output, *scales):
        asked.append(about)
        if key is None or about is not None:
            result = right(kv_cache, about.block_table, about.seq_lens, query, self.scale, about.max_query_len)
            output.copy_(result)
        return output

    monkeypatch.setattr(flash.FlashAttentionImpl, "forward", forward)
    with set_current_vllm_config(VllmConfig()):
        impl = flash.Impl(8, 32, 0.2, 2, None, None, "auto")
    flash.forget()
    yield impl, asked, flash
    flash.forget()


def about(flash, table, lengths, queries=1, **more):
    requests = table.shape[0]
    usual = dict(
        num_actual_tokens=requests * queries, max_query_len=queries, max_seq_len=int(lengths.max()), seq_lens=lengths,
        block_table=table, query_start_loc=torch.arange(0, requests * queries + 1, queries).int(), slot_mapping=None,
        use_cascade=False, common_prefix_len=0, cu_prefix_query_lens=None, prefix_kv_lens=None, suffix_kv_lens=None,
    )  # fmt: skip
    return flash.FlashAttentionMetadata(**{**usual, **more})


def test_who_answers_a_step(layer, monkeypatch):
    impl, asked, flash = layer
    cache, table, lengths, query = step(4, 8, 2, 32, 16, 4, torch.float32)
    expected = right(cache, table, lengths, query, 0.2)

    def answered(metadata, cache=cache):
        del asked[:]
        out = torch.full_like(query, float("nan"))
        assert impl.forward(SimpleNamespace(), query, None, None, cache, metadata, out) is out
        near(out, expected.float(), 1e-4)
        return "theirs" if asked else "ours"

    plain = about(flash, table, lengths)
    assert answered(plain) == "theirs", "nothing was measured"
    assert warplap.store.ls() == []
    monkeypatch.setattr(flash, "wins", lambda *_: True)
    assert answered(plain) == "ours"
    assert answered(plain, cache.contiguous()) == "theirs", "another order of the cache"
    for odd in (
        {"use_cascade": True}, {"causal": False}, {"mm_prefix_range_tensor": torch.zeros(4, 1, 2)},
        {"rswa_prefix_lens": lengths}, {"sliding_window": (5, 5)}, {"max_query_len": 2},
    ):  # fmt: skip
        seen = about(flash, table, lengths)
        for name, value in odd.items():
            setattr(seen, name, value)
        assert not impl._decodes(seen), odd
    assert impl._decodes(about(flash, table, lengths, sliding_window=(5, 0)))
    impl._plain = False
    assert answered(plain) == "theirs"


def test_a_race_between_the_two_decides_and_is_replayed(layer, monkeypatch):
    impl, asked, flash = layer
    cache, table, lengths, query = step(3, 8, 2, 32, 16, 4, torch.float32)
    metadata, pool = about(flash, table, lengths), attention.pool_of(cache)
    wins = lambda: flash.wins(impl, SimpleNamespace(), query, pool, metadata)
    monkeypatch.delenv("WARPLAP_MODE", raising=False)
    monkeypatch.setenv("WARPLAP_VLLM_MODE", "tune")
    decision = wins()
    (row,) = warplap.store.ls("vllm_decode")
    record = warplap.store.show(row["hash"])
    assert {t["variant"] for t in record["editions"][0]["trials"]} == {"flash_attn", "warplap"}, record
    (kernel,) = warplap.store.ls("attention")
    assert "page=16" in kernel["problem"] and "lengths=true" in kernel["problem"]
    monkeypatch.delenv("WARPLAP_VLLM_MODE")
    flash.forget()
    del asked[:]
    assert wins() == decision == (row["winner"].startswith("warplap")) and asked == []


def test_a_wrong_answer_of_ours_never_wins(layer, monkeypatch):
    impl, asked, flash = layer
    cache, table, lengths, query = step(3, 8, 2, 32, 16, 4, torch.float32)
    monkeypatch.setenv("WARPLAP_VLLM_MODE", "tune")
    monkeypatch.setattr(flash.Impl, "_decode", lambda self, q, *_: q * 0)
    assert not flash.wins(impl, SimpleNamespace(), query, attention.pool_of(cache), about(flash, table, lengths))
