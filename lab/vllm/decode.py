"""A decode step of vLLM's real engine, a random model in the shape of a Llama: plain, tuned linears, block-sparse.

    python lab/vllm/decode.py [--batches 1,8,64] [--layers 32] [--density 0.125,0.25] [--turns 5] [--budget 6]
                              [--memory 0.8] [--once] [--no-dense] [--parts attention,norms] [--logs FOLDER]

Needs vLLM, torch and the package. Each side is an engine in a process of its own, the plain one first and (unless
`--once`) last, so that what drifts is seen; `--no-dense` leaves out the tuned dense one, `--parts` adds engines with
the attention backend or the norms, which say how many of their choices ours has won. A step is the time of many
tokens less that of few, divided by the tokens between; the median of the turns. Weights are random (vLLM's dummy ones);
for the block-sparse side blocks of 64 are zero. Tuning is done before, in a process of its own, and its seconds are
told. `--tiny` is a model for CPUs, to try the script out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EIGHT = dict(
    hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    vocab_size=128256, max_position_embeddings=8192, rope_theta=500000.0, rms_norm_eps=1e-5,
)  # fmt: skip
TINY = dict(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=512, max_position_embeddings=512, rope_theta=10000.0, rms_norm_eps=1e-5,
)  # fmt: skip
BLOCK = 64
# What an engine is given for a part that is no kind of linear.
PARTS = {
    "attention": {"attention_backend": "CUSTOM"},
    "norms": {"ir_op_priority": {name: ["warplap", "native"] for name in ("rms_norm", "fused_add_rms_norm")}},
}


def write_model(folder: Path, sizes: dict) -> None:
    """A checkpoint without weights."""
    config = {
        **sizes, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))


def prune(kept: float) -> None:
    """Lets vLLM's dummy weights of linears have zero blocks."""
    import torch
    from vllm.model_executor.model_loader import dummy_loader, weight_utils

    usual = weight_utils.initialize_single_dummy_weight

    def made(weight, *args, **kwargs):
        usual(weight, *args, **kwargs)
        if weight.ndim == 2 and weight.shape[0] % BLOCK == 0 and weight.shape[1] % BLOCK == 0:
            tiles = weight.data.view(weight.shape[0] // BLOCK, BLOCK, weight.shape[1] // BLOCK, BLOCK)
            mask = torch.rand(tiles.shape[0], 1, tiles.shape[2], 1, device=weight.device) < kept
            tiles *= mask

    dummy_loader.initialize_single_dummy_weight = made


def child(asked: dict) -> None:
    """One engine: steps by batch, or nothing where it only tunes."""
    if asked["density"]:
        prune(asked["density"])
    from vllm import LLM, SamplingParams

    tiny = asked["tiny"]
    eager = asked["tunes"] and not asked["part"]  # attention meets its largest sizes only before a graph is captured
    began = time.monotonic()
    llm = LLM(
        asked["model"], load_format="dummy", skip_tokenizer_init=True, quantization=asked["quantization"], seed=0,
        max_model_len=256 if tiny else 1024, max_num_seqs=max(asked["batches"]), enforce_eager=eager or tiny,
        enable_prefix_caching=False, max_num_batched_tokens=256 if tiny else 2048,
        **({} if tiny else {"gpu_memory_utilization": asked["memory"]}), **PARTS.get(asked["part"], {}),
    )  # fmt: skip
    report = {"load": time.monotonic() - began, "steps": {}}
    few, many = (2, 10) if tiny else (8, 72)
    for batch in [] if asked["tunes"] else asked["batches"]:
        prompts = [{"prompt_token_ids": [3 + (i + j) % 200 for j in range(16)]} for i in range(batch)]

        def seconds(tokens: int, prompts=prompts) -> float:
            sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
            start = time.perf_counter()
            llm.generate(prompts, sampling, use_tqdm=False)
            return time.perf_counter() - start

        seconds(few)
        turns = [(seconds(many) - seconds(few)) / (many - few) for _ in range(asked["turns"])]
        report["steps"][str(batch)] = turns
    if asked["part"]:
        decisions = importlib.import_module("warplap.vllm." + {"attention": "flash", "norms": "ir"}[asked["part"]])._won
        report["won"] = f"{sum(decisions.values())} of {len(decisions)}"
    print("\n" + json.dumps(report))


def run(asked: dict, env: dict, log: Path | None) -> dict:
    """What an engine of its own found; nothing where it failed or did not end, which is said."""
    command = [sys.executable, __file__, "--child", json.dumps(asked)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=asked["limit"])
    except subprocess.TimeoutExpired as late:
        print(f"did not end within {asked['limit']:g} s: {(late.stderr or b'')[-2000:].decode()}", flush=True)
        return {}
    if log is not None:
        log.write_text(done.stdout + done.stderr)
    if done.returncode:
        print(done.stdout[-2000:] + done.stderr[-6000:], flush=True)
        return {}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--density", default="0.125,0.25")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--budget", type=float, default=6.0)
    parser.add_argument("--memory", type=float, default=0.8)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--no-dense", action="store_true")
    parser.add_argument("--parts", default="")
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        return child(json.loads(options.child))
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        sizes = {**(TINY if options.tiny else EIGHT)}
        sizes["num_hidden_layers"] = options.layers or sizes["num_hidden_layers"]
        write_model(Path(folder) / "model", sizes)
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        env |= {"VLLM_LOGGING_LEVEL": "INFO" if options.logs else "WARNING", "WARPLAP_VLLM_BUDGET": str(options.budget)}
        env.setdefault("WARPLAP_STORE", f"{folder}/store")
        usual = {
            "model": f"{folder}/model", "batches": [int(b) for b in options.batches.split(",")], "turns": options.turns,
            "tiny": options.tiny, "quantization": None, "density": 0.0, "tunes": False, "memory": options.memory,
            "limit": options.limit, "part": None,
        }  # fmt: skip
        sides = {"plain": usual}
        if not options.no_dense:
            sides["warplap"] = {**usual, "quantization": "warplap"}
        for density in [float(d) for d in options.density.split(",") if d]:
            sides[f"blocks of {BLOCK}, {density:.1%}"] = {**usual, "quantization": "warplap_bsr", "density": density}
        for part in filter(None, options.parts.split(",")):
            sides[part] = {**usual, "part": part}
        if not options.once:
            sides["plain again"] = usual
        reports = {}
        for at, (name, asked) in enumerate(sides.items()):
            log = lambda word, at=at: options.logs / f"{at}-{word}.log" if options.logs else None
            if asked["quantization"] or asked["part"]:
                tuned = run({**asked, "tunes": True}, {**env, "WARPLAP_VLLM_MODE": "tune"}, log("tuning"))
                print(f"{name}: loaded and tuned in {tuned.get('load', 0):.0f} s", flush=True)
            reports[name] = run(asked, env, log("serving"))
            turns = reports[name].get("steps", {})
            steps = {batch: round(1e3 * statistics.median(every), 3) for batch, every in turns.items()}
            won = f", won {reports[name]['won']}" if "won" in reports[name] else ""
            load = reports[name].get("load", 0)
            print(f"{name}: loaded in {load:.0f} s{won}, ms by batch: {json.dumps(steps)}", flush=True)
        reports = {name: side for name, side in reports.items() if side}
        if "plain" not in reports:
            sys.exit("vLLM alone did not run")
        times = " | ".join(f"{name} ms" for name in reports)
        print(f"| batch | {times} | " + " | ".join(list(reports)[1:]) + " |")
        print("|" + "---|" * (2 * len(reports)))
        ratios: dict[str, list[float]] = {name: [] for name in list(reports)[1:]}
        for batch in usual["batches"]:
            step = {name: statistics.median(side["steps"][str(batch)]) for name, side in reports.items()}
            times = " | ".join(f"{1e3 * s:.3f}" for s in step.values())
            for name, every in ratios.items():
                every.append(step["plain"] / step[name])
            print(f"| {batch} | {times} | " + " | ".join(f"{every[-1]:.3f}×" for every in ratios.values()) + " |")
        means = [f"{statistics.geometric_mean(every):.3f}×" for every in ratios.values()]
        print("| geometric mean |" + " |" * len(reports) + " " + " | ".join(means) + " |")


if __name__ == "__main__":
    main()
