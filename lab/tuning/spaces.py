"""Finding the legal configs of space definitions, beside Kernel Tuner and pyATF, in one run.

    cargo build --release -p warplap-report --example spaces
    python lab/tuning/spaces.py [--repeats 3] [--large] [FILE ...]

Needs kernel-tuner and pyatf. CPU seconds of the fastest repeat of each: Kernel Tuner's default (a list), pyATF's tree (no
list), and ours: counted (no list) and listed. --large also gives pyATF the space of 149 million configs (a minute).
"""

import argparse
import glob
import json
import os
import pathlib
import platform
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"[A-Za-z_]\w*")


def kernel_tuner(definition):
    from kernel_tuner.searchspace import Searchspace

    params = {p["name"]: p["values"] for p in definition["params"]}
    started = time.process_time()
    space = Searchspace(params, list(definition["restrictions"]), 1 << 62)
    return time.process_time() - started, space.size


def pyatf(definition):
    """A restriction belongs to the last parameter it names."""
    from pyatf import TP, Set
    from pyatf.search_space import SearchSpace

    names = [p["name"] for p in definition["params"]]
    rules = {name: [] for name in names}
    for restriction in definition["restrictions"]:
        read = [n for n in names if n in NAME.findall(restriction)]
        rules[read[-1]].append((restriction, read))
    params = []
    for param in definition["params"]:
        name, own = param["name"], rules[param["name"]]
        constraint = None
        if own:
            read = [n for n in names if any(n in r for _, r in own)]
            text = " and ".join(f"({r})" for r, _ in own)
            constraint = eval(f"lambda {', '.join(read)}: {text}")
        params.append(TP(name, Set(*param["values"]), constraint) if constraint else TP(name, Set(*param["values"])))
    started = time.process_time()
    space = SearchSpace(*params, verbosity=0)
    return time.process_time() - started, space.constrained_size


def best(what, definition, repeats):
    seconds, count = float("inf"), None
    for _ in range(repeats):
        took, count = what(definition)
        seconds = min(seconds, took)
    return seconds, count


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="*")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--large", action="store_true")
    arguments.add_argument("--program", default=os.path.join(ROOT, "target/release/examples/spaces"))
    arguments = arguments.parse_args()
    files = arguments.files or sorted(glob.glob(os.path.join(ROOT, "crates/warplap-report/tests/spaces/construct/*.json")))
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}")
    print("| space | legal | Kernel Tuner | pyATF tree | ours, counted | ours, listed | KT / listed | pyATF / listed |")
    print("|---|---|---|---|---|---|---|---|")
    for file in files:
        definition = json.load(open(file))
        large = definition["name"] == "atf_gaussian_pow2"
        out = subprocess.run([arguments.program, file], capture_output=True, text=True, check=True).stdout
        ours = json.loads(out.splitlines()[-1])
        kt, counts = None, {ours["legal"]}
        if not large:
            kt, count = best(kernel_tuner, definition, arguments.repeats)
            counts.add(count)
        tree = None
        if not large or arguments.large:
            tree, count = best(pyatf, definition, 1 if large else arguments.repeats)
            counts.add(count)
        assert len(counts) == 1, (definition["name"], counts)
        listed = ours["listed_seconds"]
        show = lambda s: "-" if s is None else f"{s:.5f}"
        ratio = lambda s: "-" if s is None or listed is None else f"{s / listed:.0f}"
        if tree is not None and listed is not None:
            against = f"{tree / listed:.1f}"
        else:
            against = "-" if tree is None else f"{tree / ours['counted_seconds']:.0f} (counted)"
        print(f"| {definition['name']} | {ours['legal']:,} | {show(kt)} | {show(tree)} | {show(ours['counted_seconds'])} "
              f"| {show(listed)} | {ratio(kt)} | {against} |", flush=True)


if __name__ == "__main__":
    main()
