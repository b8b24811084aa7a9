"""Makes kindred devices up: recorded spaces times a random function of their axes, as donors for warm starts.

Each table's time is multiplied by exp(s · sd · g): g is a sum of random effects of every axis, of every pair of axes (0.7) and
of every config (0.3), brought to mean 0 and deviation 1; sd is the deviation of the table's own logarithms; s is 0.35 (near) or
1.0 (far). What fails in the table fails in the donor. Prints how good the donor's best and best of ten are in the table."""

import argparse
import json
import pathlib
import random


def mean(values):
    return sum(values) / len(values)


def deviation(values):
    middle = mean(values)
    return mean([(v - middle) ** 2 for v in values]) ** 0.5


def effects(configs, rng):
    """The random function, config by config."""
    axes = len(configs[0])
    lengths = [max(c[a] for c in configs) + 1 for a in range(axes)]
    single = [[rng.gauss(0, 1) for _ in range(n)] for n in lengths]
    pairs = {
        (a, b): [[rng.gauss(0, 0.7) for _ in range(lengths[b])] for _ in range(lengths[a])]
        for a in range(axes)
        for b in range(a)
        if lengths[a] > 1 and lengths[b] > 1
    }
    raw = [
        sum(single[a][c[a]] for a in range(axes)) + sum(t[c[a]][c[b]] for (a, b), t in pairs.items()) + rng.gauss(0, 0.3)
        for c in configs
    ]
    middle, spread = mean(raw), deviation(raw)
    return [(v - middle) / spread for v in raw]


def main():
    from math import exp, log

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", default="1", help="numbers of the draws, joined by commas")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("spaces", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for path in args.spaces:
        table = json.loads(path.read_text())
        times = table["time_ms"]
        right = [i for i, t in enumerate(times) if t is not None]
        spread, best = deviation([log(times[i]) for i in right]), min(times[i] for i in right)
        for draw in args.draws.split(","):
            for name, share in (("near", 0.35), ("far", 1.0)):
                g = effects(table["configs"], random.Random(f"{path.stem} {name} {draw}"))
                own = [None if t is None else t * exp(share * spread * g[i]) for i, t in enumerate(times)]
                ten = sorted(right, key=lambda i: own[i])[:10]
                first, among = times[ten[0]] / best, min(times[i] for i in ten) / best
                (args.output / f"{path.stem}--{name}{draw}.json").write_text(json.dumps({**table, "time_ms": own}))
                print(f"{path.stem:28} {name:5} {draw}  its best {first:.3f}, the best of its ten {among:.3f} of the optimum")


if __name__ == "__main__":
    main()
