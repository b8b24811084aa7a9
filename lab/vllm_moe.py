"""What tuning a table of fused experts costs by vLLM's own way, on a sample of it, beside `warplap vllm tune`.

    python lab/vllm_moe.py CONFIG.json [--tp 1] [--tokens 16,256,2048] [--sample 12]

Needs a GPU, vLLM and the package. vLLM's script measures each of 1920 configs at 18 numbers of tokens, one after the
other: new random weights, compiling, a run, a captured graph of ten runs, five replays to warm up and twenty that
count, with other routings before each. That is done here to configs drawn at random, in their order, and their mean is
multiplied by all there are: the whole is an extrapolation and not a measurement. Then `warplap vllm tune` and
`warplap vllm check` tell the rest.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time

import torch
from warplap.vllm import fused, layer, shapes, tune

# The space of vLLM's script on NVIDIA GPUs.
SPACE = dict(
    BLOCK_SIZE_M=[16, 32, 64, 128, 256], BLOCK_SIZE_N=[32, 64, 128, 256], BLOCK_SIZE_K=[64, 128, 256],
    GROUP_SIZE_M=[1, 16, 32, 64], num_warps=[4, 8], num_stages=[2, 3, 4, 5],
)  # fmt: skip


def measured(shape: shapes.Shape, config: dict, tokens: int) -> tuple[float, float]:
    """Seconds that a config costs this way, and microseconds of a run; infinite where it does not run."""
    began = time.perf_counter()
    made = layer.Layer(shape, "cuda:0")
    x, shares, ids = made.arguments(tokens)
    experts, override = fused.named("fused_experts"), fused.named("override_config")
    us = float("inf")
    try:
        with override(dict(config)):
            share, chosen = shares[0].clone(), ids[0].clone()
            run = lambda: experts(x, made.w1, made.w2, share, chosen)
            run()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(10):
                    run()
            for _ in range(5):
                graph.replay()
            torch.cuda.synchronize()
            times = []
            for turn in range(20):
                chosen.copy_(ids[turn % len(ids)])
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end) * 100)
            us = statistics.mean(times)
    except Exception as error:  # vLLM's script survives one kind of error; the clock runs for all
        print(f"  {config}: {type(error).__name__}")
    return time.perf_counter() - began, us


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--tokens", default="16,256,2048")
    parser.add_argument("--sample", type=int, default=12)
    given = parser.parse_args()
    shape = shapes.read(given.config, given.tp, False, None)
    every = [dict(zip(SPACE, values)) for values in itertools.product(*SPACE.values())]
    random.seed(0)
    drawn = random.sample(every, given.sample)
    seconds = []
    for tokens in map(int, given.tokens.split(",")):
        found = [measured(shape, config, tokens) for config in drawn]
        seconds += [s for s, _ in found]
        best = min(us for _, us in found)
        mean = statistics.mean(s for s, _ in found)
        print(f"{tokens} tokens: {mean:.2f} s a config, the best of {len(drawn)} takes {best:.1f} µs", flush=True)
    whole = statistics.mean(seconds) * len(every) * len(tune.USUAL)
    print(f"the whole space, extrapolated: {whole / 3600:.1f} hours ({len(every)} configs, {len(tune.USUAL)} rows)")


if __name__ == "__main__":
    main()
