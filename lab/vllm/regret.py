"""What is lost by racing only the commonest winners of vLLM's shipped tables, where everything was measured.

    python lab/vllm/regret.py CONFIG.json [--tp 1] [--tokens 64] [--common 50,100,200] [--held-out]

Needs a GPU, vLLM and the package. Every config that the GPU has room for is compiled and timed briefly; the best of
all and the best of the commonest ones then race by the package's own clock and are proved. `--held-out` counts no table
of the same experts and shard. What is told is how much longer the best of the commonest ones takes.
"""

from __future__ import annotations

import argparse
import time

import torch
from warplap.tuner.modes import set_mode
from warplap.vllm.experts import compile_ahead, fused, prior, shapes, space as experts_space
from warplap.vllm.experts.layer import Layer
from warplap.vllm.experts.race import Race

# Of each list so many are raced in the end.
LAST = 6


def brief(race: Race, config: experts_space.Config) -> float:
    """Seconds of a run, the least of a few; infinite where it does not run."""
    args = race.arguments
    try:
        race.layer.run(config, *args)
        if not race.device.torch.startswith("cuda"):
            began = time.perf_counter()
            race.layer.run(config, *args)
            return time.perf_counter() - began
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            race.layer.run(config, *args)
        taken = []
        for _ in range(4):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            taken.append(start.elapsed_time(end) * 1e-3)
        return min(taken)
    except Exception as error:
        print(f"  {config}: {type(error).__name__}", flush=True)
        return float("inf")


def row(layer: Layer, device: fused.Device, tokens: int, known: list[prior.Row], counts: list[int],
        compiler: compile_ahead.Compiler | None) -> None:  # fmt: skip
    """One number of tokens."""
    began = time.monotonic()
    race = Race(layer, device, tokens, known=known, common=max(counts), compiler=compiler)
    listed = {count: {experts_space.key(c) for c in race.waiting[:count]} for count in counts}
    every = {experts_space.key(c): c for c in [race.default, *race.waiting, *experts_space.space(layer.shape, device.arch, device.room)]}
    race.ahead(every.values())
    runs = {name: c for name, c in every.items() if race._trial(c) is None}
    compiled = time.monotonic() - began
    times = {name: brief(race, c) for name, c in runs.items()}
    best = lambda names: sorted((n for n in names if n in times), key=lambda n: times[n])[:LAST]
    finalists = {experts_space.key(race.default), *best(times)}
    for names in listed.values():
        finalists |= set(best(names))
    race.race("regret", [every[n] for n in sorted(finalists) if n in times], 8.0)
    right = race.times
    cells = " | ".join(
        f"{100 * (min((right[n] for n in right if n in names), default=float('inf')) / min(right.values()) - 1):.1f} %"
        for names in listed.values()
    )
    winner = min(right, key=lambda n: right[n])
    default = right.get(experts_space.key(race.default), float("inf")) / right[winner]
    whose, spent = f"{layer.shape.experts}×{layer.shape.shard}", time.monotonic() - began - compiled
    print(f"| {whose} | {tokens} | {len(runs)} of {len(every)} | {cells} | {default:.3f}× | {winner} "
          f"| {compiled:.0f} + {spent:.0f} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--tokens", default="64")
    parser.add_argument("--common", default="50,100,200")
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    counts = [int(count) for count in options.common.split(",")]
    device = fused.Device.here()
    compiler = compile_ahead.Compiler(room=device.room) if compile_ahead.can() else None
    print("| experts | tokens | configs that run | " + " | ".join(f"of {c}" for c in counts) + " | default | best | s |")
    print("|" + "---|" * (6 + len(counts)))
    with set_mode("tune"):
        for config in options.configs:
            shape = shapes.read(config, options.tp, False, None)
            known = prior.rows(fused.folder())
            if options.held_out:
                known = [r for r in known if (r.experts, r.shard) != (shape.experts, shape.shard)]
            layer = Layer(shape, device.torch)
            for tokens in map(int, options.tokens.split(",")):
                row(layer, device, tokens, known, counts, compiler)
    if compiler is not None:
        compiler.end()


if __name__ == "__main__":
    main()
