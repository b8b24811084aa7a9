"""Races one problem many times with fresh stores and holds the verdicts to their word: who is shown faster than the
winner (nobody may be), how often "x % sure" is right, and what the winners lose to the best of a long re-measurement.

The truth is measured afterwards: every candidate that any race showed within a fifth of its winner is timed in turns,
many short blocks each, and compared within turns. Needs the program `warplap` and Python alone; runs on the CPU.
`--load N` keeps N processes busy while it races; the truth is measured without them."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

NEAR = 1.2


def run(program, store, *arguments):
    done = subprocess.run([program, "--store", store, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def named(trial):
    config = ((k, str(v).lower() if isinstance(v, bool) else v) for k, v in trial["config"].items())
    return trial["variant"], ",".join(f"{k}={v}" for k, v in config)


def races(args, folder):
    """The answers of all races, each with a store of its own that knows the machine's ceilings already."""
    ready = folder / "ready"
    run(args.program, str(ready), "tune", args.problem, "--budget", "0.05")
    notes = [path for path in ready.rglob("*ceilings*") if path.is_file()]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.load)]
    try:
        for n in range(args.races):
            store = folder / str(n)
            for note in notes:
                copy = store / note.relative_to(ready)
                copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                copy.write_bytes(note.read_bytes())
            store.chmod(0o700) if store.exists() else None
            budget = ("--budget", str(args.budget), "--seed", str(n))
            yield run(args.program, str(store), "tune", args.problem, *budget)[0]
    finally:
        for process in busy:
            process.kill()


def truth(args, store, candidates):
    """How many times longer than the fastest each candidate takes, by medians of ratios within turns."""
    turns = {candidate: [] for candidate in candidates}
    for _ in range(args.turns):
        for candidate, times in turns.items():
            config = ("--config", candidate[1]) if candidate[1] else ()
            samples = ("--samples", str(args.samples))
            line = run(args.program, store, "bench", args.problem, "--variant", candidate[0], *config, *samples)[0]
            times.append(line["median_us"])
    level = [statistics.median(times[i] for times in turns.values()) for i in range(args.turns)]
    centre = {c: statistics.median(t / level[i] for i, t in enumerate(times)) for c, times in turns.items()}
    best = min(centre.values())
    return {candidate: value / best for candidate, value in centre.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="target/release/warplap")
    parser.add_argument("--problem", default="gemm:m=256,n=256,k=256,dtype=f32")
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the races")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of a race")
    parser.add_argument("--turns", type=int, default=7, help="turns of the re-measurement; 0 for none")
    parser.add_argument("--samples", type=int, default=60, help="samples of a turn")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        answers = list(races(args, Path(folder)))
        shown, near, grades = 0, {}, {}
        for answer in answers:
            timed = [t for t in answer["trials"] if "median_us" in t]
            shown += sum(t["median_us"] < answer["median_us"] for t in timed)
            assert named(timed[0]) == named(answer["winner"]), "the winner does not stand first"
            for trial in timed:
                if trial["median_us"] <= NEAR * answer["median_us"]:
                    near[named(trial)] = near.get(named(trial), 0) + 1
            grades[answer["grade"]] = grades.get(answer["grade"], 0) + 1
        print(f"{args.problem}: {len(answers)} races of {args.budget} s under load {args.load}: {grades}")
        print(f"candidates shown faster than the winner: {shown}")
        if not args.turns:
            return
        often = sorted(near, key=near.get, reverse=True)
        wanted = {named(a["winner"]) for a in answers} | set(often[:16])
        real = truth(args, str(Path(folder) / "ready"), sorted(wanted))
        lost = [real[named(a["winner"])] - 1 for a in answers]
        print(f"regret of the winners among {len(real)} re-measured: median {100 * statistics.median(lost):.1f} %, "
              f"worst {100 * max(lost):.1f} %")
        sure = [(a["confidence"], real[named(a["winner"])] <= 1.01) for a in answers if a["confidence"]]
        if sure:
            said, right = statistics.mean(s for s, _ in sure), statistics.mean(r for _, r in sure)
            print(f"{len(sure)} said how sure they are: {100 * said:.1f} % on average, right {100 * right:.1f} %")


if __name__ == "__main__":
    main()
