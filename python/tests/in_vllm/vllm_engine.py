"""Runs vLLM's real engine by plans (JSON on stdin), in turn, and prints what came of them (JSON, last line):
a process of its own for tests, because an engine leaves much behind and takes half a minute to load."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

PROMPTS = [[3, 17, 5, 99, 240, 7, 61, 12, 8, 33], [5, 6], [200, 100, 50, 25, 12, 6, 3, 1, 9, 81, 44, 70, 2]]


def run(plan: dict) -> dict:
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    os.environ.pop("WARPLAP_VLLM_MODE", None)
    os.environ.update(plan.get("env", {}))
    _decide(plan.get("decide"))
    asked = dict(
        max_model_len=128, max_num_seqs=8, max_num_batched_tokens=128, skip_tokenizer_init=True, seed=0,
        enforce_eager=True, enable_prefix_caching=False,
    )  # fmt: skip
    try:
        llm = LLM(plan["model"], **{**asked, **plan.get("asked", {})})
    except Exception as error:
        return {"error": str(error)}
    of_prompts = None if "enable_lora" in plan["asked"] else 0  # on CPUs vLLM's adapters cannot
    sampling = SamplingParams(temperature=0.0, max_tokens=6, prompt_logprobs=of_prompts, logprobs=0, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], sampling, use_tqdm=False)
    report: dict = {"tokens": [], "logprobs": []}
    for output in outputs:
        report["tokens"].append(list(output.outputs[0].token_ids))
        steps = [*(output.prompt_logprobs or [None])[1:], *output.outputs[0].logprobs]
        report["logprobs"].append([next(iter(step.values())).logprob for step in steps])
    if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0":
        report["seen"] = llm.apply_model(look)[0]
    report["hash"] = llm.llm_engine.vllm_config.compute_hash()
    files = [p for p in Path(os.environ["WARPLAP_STORE"]).rglob("*") if p.is_file() and p.name != "store.json"]
    report["kept"] = {str(p): p.stat().st_mtime_ns for p in files}
    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()
    gc.collect()
    return report


def _decide(how: str | None) -> None:
    """What is known is asked anew, or not at all: ``ours`` is everything, whoever may have won."""
    if "warplap" not in sys.modules and how is None:
        return
    from warplap.vllm import known, served

    served.forget()
    ask = vars(served).setdefault("_asks", served.decide)
    served.decide = ask
    if how == "ours":
        served.decide = lambda w, bias, sizes, race: served._won.setdefault(
            served._layer(w, bias), frozenset(map(known.shared, sizes))
        )


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
    import torch

    torch.cpu._init_amx()  # nobody else may ask the kernel for it before vLLM's own attention wants it
    done = [run(plan) for plan in plans]
    print("\n" + json.dumps(done))
