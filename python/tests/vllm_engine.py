"""Runs vLLM's real engine by a plan (JSON on stdin) and prints what came of it (JSON, last line): a process of its own
for tests, because an engine leaves much behind."""

from __future__ import annotations

import gc
import json
import os
import sys

PROMPTS = [[3, 17, 5, 99, 240, 7, 61, 12, 8, 33], [5, 6], [200, 100, 50, 25, 12, 6, 3, 1, 9, 81, 44, 70, 2]]


def run(plan: dict) -> dict:
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    os.environ.pop("WARPLAP_VLLM_MODE", None)
    os.environ.update(plan.get("env", {}))
    if plan.get("forget") or plan.get("force"):
        from warplap.vllm import known, served

        served.forget()
        if plan.get("force"):  # whoever may have won
            served.decide = lambda w, bias, sizes, race: served._won.setdefault(
                served._layer(w, bias), frozenset(map(known.shared, sizes))
            )
    asked = dict(
        max_model_len=128, max_num_seqs=8, max_num_batched_tokens=128, skip_tokenizer_init=True, seed=0,
        enforce_eager=True, enable_prefix_caching=False,
    )  # fmt: skip
    llm = LLM(plan["model"], **{**asked, **plan.get("asked", {})})
    sampling = SamplingParams(temperature=0.0, max_tokens=6, prompt_logprobs=0, logprobs=0, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], sampling, use_tqdm=False)
    found: dict = {"tokens": [], "logprobs": []}
    for output in outputs:
        found["tokens"].append(list(output.outputs[0].token_ids))
        steps = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
        found["logprobs"].append([next(iter(step.values())).logprob for step in steps])
    if plan.get("look"):
        found["seen"] = llm.apply_model(look) if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0" else None
    found["hash"] = llm.llm_engine.vllm_config.compute_hash()
    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()
    gc.collect()
    return found


def look(model) -> dict:
    """Who runs each linear."""
    kinds = {}
    for name, layer in model.named_modules():
        if hasattr(layer, "warplap_serves"):
            sparse = getattr(layer, "warplap_sparse", False)
            kinds[name] = "sparse" if sparse else "served" if layer.warplap_serves else "left"
    return kinds


if __name__ == "__main__":
    plans = json.load(sys.stdin)
    if not plans[0].get("plugged", True):
        os.environ["VLLM_PLUGINS"] = "none"
    import torch

    torch.cpu._init_amx()  # nobody else may ask the kernel for it before vLLM's own attention wants it
    done = [run(plan) for plan in plans]
    print("\n" + json.dumps(done))
