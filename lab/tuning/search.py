"""Searches on recorded spaces, beside Kernel Tuner's strategies in simulation, in one run.

    cargo build --release
    python lab/tuning/search.py --spaces FILE ... [--searches auto,climb,…] [--rivals pso,genetic_algorithm,…]
                                                  [--repeats 50]

Needs kernel-tuner for the rivals. Every search has 400 unique trials, failing configs count; the score is that of
`warplap replay` for all (0 random, 1 the optimum at once). With --donor FILE ours start from that space's ten best.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUDGET = 400


def random_expectation(times, total):
    """The exact expectation of the best of k draws, for k = 1 … BUDGET."""
    times, slowest = sorted(times), max(times)
    expected = []
    for k in range(1, BUDGET + 1):
        none, mean = 1.0, 0.0
        for i, t in enumerate(times):
            after = 0.0 if i + k > total else none * (total - i - k) / (total - i)
            mean += (none - after) * t
            none = after
            if none < 1e-15:
                break
        expected.append(mean + none * slowest)
    return expected


class Space:
    def __init__(self, path):
        self.path, self.json = path, json.load(open(path))
        self.name = self.json["name"]
        ok = [t for t in self.json["time_ms"] if t is not None]
        self.optimum, self.slowest = min(ok), max(ok)
        self.random = random_expectation(ok, len(self.json["time_ms"]))

    def best_at(self, improvements, k):
        times = [t for at, t in improvements if at <= k]
        return times[-1] if times else self.slowest

    def score(self, improvements):
        return statistics.fmean(
            (r - self.best_at(improvements, k)) / (r - self.optimum) for k, r in enumerate(self.random, 1)
        )


def ours(program, space, search, repeats, donor):
    command = [program, "replay", "--space", space.path, "--search", search, "--repeats", str(repeats),
               "--budget", str(BUDGET), "--json"]
    out = subprocess.run(command + (["--donor", donor] if donor else []), capture_output=True, text=True, check=True)
    return [json.loads(line)["improvements"] for line in out.stdout.splitlines()]


def rival(space, strategy, repeats):
    """Kernel Tuner in simulation on the same table, written as a cachefile."""
    import numpy
    from kernel_tuner import tune_kernel

    names = [p["name"] for p in space.json["params"]]
    values = {p["name"]: p["values"] for p in space.json["params"]}
    cache = {}
    for config, time in zip(space.json["configs"], space.json["time_ms"]):
        entry = {n: values[n][i] for n, i in zip(names, config)}
        key = ",".join(str(v) for v in entry.values())
        entry["time"] = time if time is not None else "RuntimeFailedConfig"
        entry.update({"compile_time": 0, "verification_time": 0, "benchmark_time": 0, "strategy_time": 0,
                      "framework_time": 0, "timestamp": "", "times": [time] if time is not None else []})
        cache[key] = entry
    whole = {"device_name": "x", "kernel_name": "k", "problem_size": 1, "tune_params_keys": names,
             "tune_params": values, "objective": "time", "cache": cache}
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cache.json")
        json.dump(whole, open(path, "w"))
        for repeat in range(repeats):
            random.seed(repeat)
            numpy.random.seed(repeat)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                results, _ = tune_kernel("k", "", 1, [], values, restrictions=list(space.json["restrictions"]),
                                         cache=path, simulation_mode=True, strategy=strategy, verbose=False,
                                         strategy_options={"max_fevals": BUDGET}, quiet=True)
            seen, improvements = set(), []
            for result in results:
                key = tuple(result[n] for n in names)
                if key in seen:
                    continue
                seen.add(key)
                time = result["time"]
                good = isinstance(time, float) and (not improvements or time < improvements[-1][1])
                if good and len(seen) <= BUDGET:
                    improvements.append([len(seen), time])
            runs.append(improvements)
    return runs


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--spaces", nargs="+", required=True)
    arguments.add_argument("--searches", default="auto,climb,genetic,random")
    arguments.add_argument("--rivals", default="")
    arguments.add_argument("--repeats", type=int, default=50)
    arguments.add_argument("--rival-repeats", type=int)
    arguments.add_argument("--donor")
    arguments.add_argument("--program", default=os.path.join(ROOT, "target/release/warplap"))
    arguments = arguments.parse_args()
    spaces = [Space(path) for path in arguments.spaces]
    print("| search | " + " | ".join(s.name for s in spaces) + " | mean score | 25 | 100 | 400 | within 5 % at 100 | at 400 |")
    print("|---" * (len(spaces) + 7) + "|")
    plan = [(name, lambda s, n=name: ours(arguments.program, s, n, arguments.repeats, arguments.donor))
            for name in arguments.searches.split(",") if name]
    plan += [(f"Kernel Tuner {name}", lambda s, n=name: rival(s, n, arguments.rival_repeats or arguments.repeats))
             for name in arguments.rivals.split(",") if name]
    for name, run in plan:
        scores, ratios = [], {25: [], 100: [], 400: []}
        for space in spaces:
            runs = run(space)
            scores.append(statistics.fmean(space.score(r) for r in runs))
            for k, all_runs in ratios.items():
                all_runs += [space.best_at(r, k) / space.optimum for r in runs]
        within = lambda k: sum(r <= 1.05 for r in ratios[k]) / len(ratios[k])
        cells = [f"{s:+.3f}" for s in scores] + [f"**{statistics.fmean(scores):+.3f}**"]
        cells += [f"{statistics.fmean(ratios[k]):.3f}" for k in ratios] + [f"{within(100):.2f}", f"{within(400):.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
