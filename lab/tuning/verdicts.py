"""Races one problem many times with fresh stores and holds the verdicts to their word: who is shown faster than the
winner (nobody may be), how often "x % sure" is right, and what the winners lose to the best of a long re-measurement.

The truth is measured afterwards: long races of everyone, several, each in a process of its own; candidates are compared
within rounds. Needs the program `warplap` and Python alone; runs on the CPU. `--load N` keeps N processes busy while it
races; the truth is measured twice then, beside as many busy processes and without them, because who is fastest on a
shared machine need not be on an idle one."""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def run(program, store, *arguments):
    done = subprocess.run([program, "--store", store, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def named(trial):
    config = ((k, str(v).lower() if isinstance(v, bool) else v) for k, v in trial["config"].items())
    return trial["variant"], ",".join(f"{k}={v}" for k, v in config)


def ceilings(args, folder):
    """What a store knows of the machine, as paths and contents."""
    ready = folder / "ready"
    run(args.program, str(ready), "tune", args.problem, "--budget", "0.05")
    return {path.relative_to(ready): path.read_bytes() for path in ready.rglob("*ceilings*") if path.is_file()}


def prepared(store, notes):
    """A new store that knows the machine's ceilings already."""
    for name, content in notes.items():
        copy = store / name
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        copy.write_bytes(content)
    store.chmod(0o700) if store.exists() else None
    return str(store)


@contextlib.contextmanager
def beside(load):
    """Keeps this many processes busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()


def races(args, folder, notes):
    """The answers of all races, each with a store of its own."""
    for n in range(args.races):
        budget = ("--budget", str(args.budget), "--seed", str(n))
        yield run(args.program, prepared(folder / str(n), notes), "tune", args.problem, *budget)[0]


def truth(args, folder, notes, load):
    """How many times longer than the fastest each candidate takes: the median over long races of everyone, each in a
    process and with memory of its own, of the gaps that its rounds show."""
    slowdowns = {}
    for n in range(args.turns):
        store = prepared(folder / f"long-{load}-{n}", notes)
        long = ("--budget", str(args.long), "--seed", str(1000 + n), "--search", "exhaustive", "--eps", "0.002")
        answer = run(args.program, store, "tune", args.problem, *long)[0]
        for trial in answer["trials"]:
            if "median_us" in trial:
                slowdowns.setdefault(named(trial), []).append(trial["median_us"] / answer["median_us"])
    centre = {candidate: statistics.median(ratios) for candidate, ratios in slowdowns.items()}
    best = min(centre.values())
    return {candidate: value / best for candidate, value in centre.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="target/release/warplap")
    parser.add_argument("--problem", default="gemm:m=256,n=256,k=256,dtype=f32")
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the races")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of a race")
    parser.add_argument("--turns", type=int, default=5, help="long races of the re-measurement; 0 for none")
    parser.add_argument("--long", type=float, default=20.0, help="seconds of a long race")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        notes = ceilings(args, Path(folder))
        with beside(args.load):
            answers = list(races(args, Path(folder), notes))
        shown, grades = 0, {}
        for answer in answers:
            timed = [t for t in answer["trials"] if "median_us" in t]
            shown += sum(t["median_us"] < answer["median_us"] for t in timed)
            assert named(timed[0]) == named(answer["winner"]), "the winner does not stand first"
            grades[answer["grade"]] = grades.get(answer["grade"], 0) + 1
        print(f"{args.problem}: {len(answers)} races of {args.budget} s under load {args.load}: {grades}")
        print(f"candidates shown faster than the winner: {shown}")
        if not args.turns:
            return
        for load in dict.fromkeys((args.load, 0)):
            with beside(load):
                real = truth(args, Path(folder), notes, load)
            judged(answers, real, load)


def judged(answers, real, load):
    """Prints what the winners lost to the truth of a machine under this load, and how often sure ones were right."""
    # Who was not even reached in long races was nowhere near.
    real = {named(a["winner"]): float("inf") for a in answers} | real
    lost = [real[named(a["winner"])] - 1 for a in answers]
    print(f"against {len(real)} re-measured under load {load}: regret of the winners, median "
          f"{100 * statistics.median(lost):.1f} %, worst {100 * max(lost):.1f} %")
    sure = [(a["confidence"], real[named(a["winner"])] <= 1.01) for a in answers if a["confidence"]]
    if sure:
        said, right = statistics.mean(s for s, _ in sure), statistics.mean(r for _, r in sure)
        print(f"{len(sure)} said how sure they are: {100 * said:.1f} % on average, right {100 * right:.1f} %")


if __name__ == "__main__":
    main()
