"""Shapes of fused experts from models' config.json: fields as the real architectures have them."""

from __future__ import annotations

import json

import pytest

from warplap.vllm.experts.shapes import NoExperts, Shape, read, shape_of

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}

# What public models say of themselves, and the E, N, K and top-k of one GPU.
MODELS = [
    ({"architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_local_experts": 8,
      "num_experts_per_tok": 2, "torch_dtype": "bfloat16"}, (8, 14336, 4096, 2)),
    ({"architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632, "num_experts": 60,
      "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4},
     (60, 1408, 2048, 4)),
    ({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 6144, "num_experts": 128,
      "moe_intermediate_size": 768, "num_experts_per_tok": 8, "torch_dtype": "bfloat16"}, (128, 768, 2048, 8)),
    ({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "vision_config": {"hidden_size": 1152,
      "intermediate_size": 4304}, "text_config": {"hidden_size": 2048, "num_experts": 256, "dtype": "bfloat16",
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8}},
     (256, 512, 2048, 8)),
    ({"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 10944,
      "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1408, "num_experts_per_tok": 6},
     (64, 1408, 2048, 6)),
    ({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432,
      "n_routed_experts": 256, "moe_intermediate_size": 2048, "num_experts_per_tok": 8, "quantization_config": FP8},
     (256, 2048, 7168, 8)),
    ({"architectures": ["Glm4MoeForCausalLM"], "hidden_size": 4096, "intermediate_size": 10944,
      "n_routed_experts": 128, "moe_intermediate_size": 1408, "num_experts_per_tok": 8}, (128, 1408, 4096, 8)),
    ({"architectures": ["Gemma4ForConditionalGeneration"], "text_config": {"hidden_size": 2816, "num_experts": 128,
      "intermediate_size": 2112, "moe_intermediate_size": 704, "top_k_experts": 8, "enable_moe_block": True}},
     (128, 704, 2816, 8)),
    ({"architectures": ["OlmoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 1024, "num_experts": 64,
      "num_experts_per_tok": 8}, (64, 1024, 2048, 8)),
    ({"architectures": ["PhiMoEForCausalLM"], "hidden_size": 4096, "intermediate_size": 6400, "num_local_experts": 16,
      "num_experts_per_tok": 2}, (16, 6400, 4096, 2)),
    ({"architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 7168, "num_experts": 32,
      "moe_intermediate_size": 1792, "num_experts_per_tok": 4}, (32, 1792, 2048, 4)),
    ({"architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 32,
      "num_experts_per_tok": 4, "experts_per_token": 4}, (32, 2880, 2880, 4)),
    ({"architectures": ["DbrxForCausalLM"], "d_model": 6144, "ffn_config": {"ffn_hidden_size": 10752,
      "moe_num_experts": 16, "moe_top_k": 4}}, (16, 10752, 6144, 4)),
    ({"architectures": ["Llama4ForConditionalGeneration"], "text_config": {"hidden_size": 5120,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1}},
     (16, 8192, 5120, 1)),
    ({"architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 4096, "intermediate_size": 3072, "num_experts": 64,
      "moe_intermediate_size": [3072, 3072], "moe_topk": [8, 8]}, (64, 3072, 4096, 8)),
    ({"architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size": 2560, "intermediate_size": 12288,
      "moe_num_experts": 64, "moe_intermediate_size": 1536, "moe_k": 6}, (64, 1536, 2560, 6)),
]  # fmt: skip


@pytest.mark.parametrize(("config", "sizes"), MODELS, ids=lambda v: v["architectures"][0] if type(v) is dict else "")
def test_sizes_are_read_by_the_names_that_models_use(config, sizes):
    shape = shape_of(config)
    assert (shape.experts, shape.shard, shape.hidden, shape.top_k) == sizes
    assert shape.of_all == shape.experts


def test_gpus_share_each_expert_or_the_experts():
    mixtral, deepseek = MODELS[0][0], MODELS[5][0]
    assert shape_of(mixtral, tp=2).shard == 7168
    dealt = shape_of(deepseek, tp=8, ep=True)
    assert (dealt.experts, dealt.shard, dealt.of_all) == (32, 2048, 256)
    assert shape_of(deepseek, tp=8) == Shape(256, 256, 7168, 8, "bfloat16", "fp8_w8a8", (128, 128), 256)
    for options, part in [({"tp": 3}, "intermediate_size: 14336 is not a multiple of --tp 3"),
                        ({"tp": 16, "ep": True}, "num_local_experts: 8 is not a multiple"),
                        ({"tp": 0}, "--tp: is 0")]:  # fmt: skip
        with pytest.raises(NoExperts, match=part):
            shape_of(mixtral, **options)
    with pytest.raises(NoExperts, match="blocks of 128x128 do not divide a shard of 64"):
        shape_of(deepseek, tp=32)


def test_types_are_the_models_own_or_as_asked():
    mixtral, deepseek = MODELS[0][0], MODELS[5][0]
    assert (shape_of(mixtral).dtype, shape_of(mixtral).word) == ("bfloat16", None)
    assert shape_of({**mixtral, "torch_dtype": "float16"}).dtype == "float16"
    assert shape_of({**mixtral, "torch_dtype": "float32"}).word == "float32"
    assert (shape_of(deepseek).word, shape_of(deepseek).block) == ("fp8_w8a8", (128, 128))
    assert shape_of(deepseek, dtype="bfloat16").word is None
    assert shape_of(mixtral, dtype="int8_w8a16").word == "int8_w8a16"
    assert shape_of({**mixtral, "quantization_config": {"quant_method": "fp8"}}).block is None
    with pytest.raises(NoExperts, match="quant_method is 'awq'"):
        shape_of({**mixtral, "quantization_config": {"quant_method": "awq"}})
    with pytest.raises(NoExperts, match="weight_block_size is 128"):
        shape_of({**mixtral, "quantization_config": {"quant_method": "fp8", "weight_block_size": 128}})
    with pytest.raises(NoExperts, match="--dtype: is 'int3'"):
        shape_of(mixtral, dtype="int3")


def test_models_without_experts_are_refused_with_the_field(tmp_path):
    dense = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336}
    file = tmp_path / "config.json"
    for body, part in [
        (dense, "LlamaForCausalLM has no field for the number of experts, expected one of n_routed_experts"),
        ({**dense, "num_experts": 1}, "experts: there is 1"),
        ({**dense, "num_experts": "many"}, "num_experts: is 'many', expected the number of experts as a whole number"),
        ({**dense, "num_experts": 8}, "no field for how many experts a token takes"),
        ({**dense, "num_experts": 8, "moe_k": 9}, "moe_k: is 9 of 8 experts"),
        ([], "holds a list"),
    ]:
        file.write_text(json.dumps(body))
        with pytest.raises(NoExperts) as why:
            read(tmp_path)
        assert part in str(why.value) and str(file) in str(why.value)
    file.write_text("{")
    with pytest.raises(NoExperts, match="expected a model's config.json"):
        read(file)
    with pytest.raises(NoExperts, match="is not there"):
        read(tmp_path / "nowhere.json")


def test_a_shape_survives_a_record():
    for config, _ in MODELS:
        shape = shape_of(config)
        assert Shape.of(json.loads(json.dumps(shape.as_dict()))) == shape
