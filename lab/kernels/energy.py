"""Races a CUDA spec for time and for energy, then lets both winners draw in turns: what energy as objective is worth.

Needs the program `warplap` and a GPU whose NVML has an energy counter. Prints one line a race, one line a winner."""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile


def run(program, store, *arguments):
    done = subprocess.run([program, "--store", store, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[0])


def with_objective(text, objective, budget):
    """The spec with another objective and budget: its own lines of these names go."""
    kept = [line for line in text.splitlines() if not line.split("=")[0].strip() in ("objective", "goal", "budget", "energy")]
    if not any(line.strip() == "[metric]" for line in kept):
        kept.append("[metric]")
    at = next(i for i, line in enumerate(kept) if line.strip() == "[metric]")
    return "\n".join([f"budget = {budget}", *kept[: at + 1], f'objective = "{objective}"', *kept[at + 1 :], ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="target/release/warplap")
    parser.add_argument("--spec", default="examples/conv2d-cuda/conv2d.toml")
    parser.add_argument("--objectives", default="time,energy,energy_delay")
    parser.add_argument("--budget", type=float, default=60, help="seconds of a race")
    parser.add_argument("--search", default="auto")
    parser.add_argument("--rounds", type=int, default=5, help="turns in which the winners draw")
    parser.add_argument("--samples", type=int, default=4000, help="samples of a turn: it must last a quarter of a second")
    args = parser.parse_args()
    spec = pathlib.Path(args.spec).resolve()
    # Beside the spec, as its sources are named from there; the store lasts as long as this run.
    with tempfile.TemporaryDirectory() as store, tempfile.NamedTemporaryFile("w", suffix=".toml", dir=spec.parent) as own:
        winners = {}
        for objective in args.objectives.split(","):
            own.seek(0)
            own.truncate()
            own.write(with_objective(spec.read_text(), objective, args.budget))
            own.flush()
            line = run(args.program, store, "tune", own.name, "--search", args.search)
            config = ",".join(f"{k}={v}" for k, v in line["winner"]["config"].items())
            winners[objective] = (line["winner"]["variant"], config)
            reached = line.get("objective") or {"value": line["median_us"] * 1e-6, "ci": [t * 1e-6 for t in line["ci_us"]]}
            low, high = reached["ci"]
            print(
                f"{objective:13} {len(line['trials']):4} trials {line['seconds']:6.1f} s  {line['grade']:8}"
                f"  {reached['value']:.4e} [{low:.4e} … {high:.4e}]  {config}"
            )
        drawn = {objective: [] for objective in winners}
        for _ in range(args.rounds):
            for objective, (variant, config) in winners.items():
                line = run(
                    args.program, store, "bench", own.name, "--variant", variant, "--config", config, "--samples", str(args.samples)
                )
                drawn[objective].append((line["median_us"], line["joules"]))
        for objective, seen in drawn.items():
            us = statistics.median(s[0] for s in seen)
            joules = [s[1] for s in seen if s[1] is not None]
            spread = f"{min(joules) * 1e3:.3f} … {max(joules) * 1e3:.3f}" if joules else "not told"
            middle = statistics.median(joules) * 1e3 if joules else float("nan")
            print(f"winner by {objective:13} {us:9.2f} us  {middle:8.3f} mJ a launch ({spread})  {winners[objective][1]}")


if __name__ == "__main__":
    main()
