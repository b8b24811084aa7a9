"""What tuning a table of fused experts costs by vLLM's own way, on a sample of it, beside `warplap vllm tune`.

    python lab/vllm/moe.py CONFIG.json [--tp 1] [--tokens 16,256,2048] [--sample 12]

Needs a GPU, vLLM and the package. vLLM's script measures each of 1920 configs at 18 numbers of tokens, one after the
other: new random weights, compiling, a run, a captured graph of ten runs, five replays to warm up and twenty that
count, with other routings before each. That is done here to configs drawn at random, in their order: at the first
number of tokens once with compiling and once without, at the others without. Rows between are taken from the line
between their neighbours, and the mean is multiplied by all configs there are: the whole is an extrapolation and not a
measurement. Then `warplap vllm tune` and `warplap vllm check` tell the rest.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time

import torch
from warplap.vllm.experts import fused, layer, shapes, tune

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
    options = parser.parse_args()
    shape = shapes.read(options.config, options.tp, False, None)
    every = [dict(zip(SPACE, values)) for values in itertools.product(*SPACE.values())]
    random.seed(0)
    drawn = random.sample(every, options.sample)
    cold: list[float] = []
    warm: dict[int, float] = {}
    for tokens in map(int, options.tokens.split(",")):
        if not warm:  # what compiles is compiled once for all numbers of tokens
            cold = [measured(shape, config, tokens)[0] for config in drawn]
        measurements = [measured(shape, config, tokens) for config in drawn]
        warm[tokens] = statistics.mean(s for s, _ in measurements)
        best = f"the best of {len(drawn)} takes {min(us for _, us in measurements):.1f} µs"
        print(f"{tokens} tokens: {warm[tokens]:.2f} s a config, {best}", flush=True)
    compiling = statistics.mean(cold) - next(iter(warm.values()))
    rows = sum(between(warm, tokens) for tokens in tune.USUAL)
    print(f"compiling {compiling:.2f} s a config, once; all {len(tune.USUAL)} rows {rows:.1f} s a config")
    whole = (compiling + rows) * len(every)
    print(f"the whole space of {len(every)} configs, extrapolated: {whole / 3600:.1f} hours")


def between(known: dict[int, float], tokens: int) -> float:
    """A value at a number of tokens: along the line between its neighbours, and on along the last one."""
    at = sorted(known)
    below = [m for m in at if m <= tokens] or at[:1]
    if len(at) == 1 or tokens <= at[0]:
        return known[at[0]]
    left = below[-1] if below[-1] != at[-1] else at[-2]
    right = at[at.index(left) + 1]
    return known[left] + (known[right] - known[left]) * (tokens - left) / (right - left)


if __name__ == "__main__":
    main()
