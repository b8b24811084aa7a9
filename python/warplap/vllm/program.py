"""The program ``warplap vllm``: arguments come in; tables, lines and an exit code go out."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Sequence

from ..tuner.modes import configure
from .experts import tables
from .experts.shapes import DTYPES, NoExperts, read

# As `warplap --help` says.
OK, NO_ANSWER, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
# Seconds for each row of a table.
BUDGET = 20.0
# How often the program goes on by itself after a candidate has taken the GPU's context with it.
LIVES = 8
_LIVES = "WARPLAP_VLLM_LIVES"


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="warplap vllm",
        description="Tunes for vLLM ahead of time: tables of fused mixture-of-experts kernels, and linear layers.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    tune = commands.add_parser("tune", help="race a model's fused experts and write the table that vLLM reads")
    tune.add_argument("model", help="a model's folder, or its config.json")
    tune.add_argument("--tp", type=int, default=1, metavar="N", help="GPUs that share a layer (tensor parallel)")
    tune.add_argument("--ep", action="store_true", help="they share experts, not each expert (expert parallel)")
    tune.add_argument("--dtype", choices=DTYPES, help="types of weights; by default the model's own")
    tune.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where the table goes; by default the folder "
                      "that the plugin offers to vLLM")  # fmt: skip
    tune.add_argument("--tokens", type=_numbers, metavar="M,M,…", help="rows of the table; by default vLLM's 18, and "
                      "8192 and 16384 for prefills")  # fmt: skip
    tune.add_argument("--budget", type=_seconds, metavar="SECONDS", help="for each row (20), or race of a linear (6)")
    tune.add_argument("--candidates", type=int, default=200, metavar="N", help="winners of shipped tables that may "
                      "race in a row (200)")  # fmt: skip
    tune.add_argument("--whole", action="store_true", help="then every legal config, with a budget of hours")
    tune.add_argument("--at-once", type=int, default=40, metavar="N", help="candidates of one race (40)")
    tune.add_argument("--compilers", type=int, metavar="N", help="processes that compile; 0 compiles as it goes")
    tune.add_argument("--again", action="store_true", help="forget the rows that are done")
    tune.add_argument("--all-gpus", action="store_true", help="deal the rows out to every GPU at hand")
    tune.add_argument("--linears", action="store_true", help="tune the model's linear layers instead, for "
                      "--quantization warplap: vLLM loads it here")  # fmt: skip
    tune.add_argument("--sparse", action="store_true", help="with --linears: a checkpoint with zero blocks, for "
                      "--quantization warplap_bsr")  # fmt: skip
    tune.add_argument("--load-format", metavar="FORMAT", help="with --linears: vLLM's; dummy reads no weights")
    tune.add_argument("--rows", type=_numbers, help=argparse.SUPPRESS)
    check = commands.add_parser("check", help="measure default, shipped and own tables side by side")
    check.add_argument("folder", type=Path, nargs="?", help="where tables are; by default the plugin's folder")
    check.add_argument("--budget", type=_seconds, default=2.0, metavar="SECONDS", help="for each row (2)")
    check.add_argument("--no-measure", action="store_true", help="check the form, show what was recorded")
    for one in (tune, check):
        one.add_argument("--json", action="store_true", help="lines of JSON on standard output")
        one.add_argument("--store", metavar="DIR|URL", help="where races are kept; by default as everywhere")
    return made


def _numbers(text: str) -> list[int]:
    try:
        result = [int(part) for part in text.split(",")]
    except ValueError:
        result = [0]
    if min(result) < 1:
        raise argparse.ArgumentTypeError(f"is '{text}', expected numbers of tokens from 1, as 1,16,4096")
    return result


def _seconds(text: str) -> float:
    try:
        result = float(text)
    except ValueError:
        result = -1.0
    if not 0.0 < result < 1e6:
        raise argparse.ArgumentTypeError(f"is '{text}', expected seconds above 0")
    return result


def main(argv: Sequence[str]) -> int:
    """Runs it; the exit code."""
    asked = parser().parse_args(argv)
    if asked.store:
        os.environ["WARPLAP_STORE"] = asked.store  # for those that are started from here
        configure(store=asked.store)
    try:
        return _tune(asked, list(argv)) if asked.command == "tune" else _check(asked)
    except NoExperts as why:
        return _failed(asked, str(why), BAD_INPUT)
    except KeyboardInterrupt:
        return _failed(asked, "interrupted: rows that are done are kept, the same command goes on", INTERRUPTED)
    except ImportError as why:
        return _failed(asked, f"{why}: expected torch and vllm beside {sys.executable}", NO_ANSWER)
    except (RuntimeError, ValueError, OSError) as why:
        return _failed(asked, f"{why}" or type(why).__name__, NO_ANSWER)


def _failed(asked: argparse.Namespace, sentence: str, code: int) -> int:
    if asked.json:
        print(json.dumps({"event": "failed", "error": sentence}), flush=True)
    print(f"warplap vllm: {sentence}", file=sys.stderr)
    return code


class _Progress:
    """Says what happens: lines of JSON, or sentences."""

    def __init__(self, as_json: bool) -> None:
        self._json, self._began = as_json, time.monotonic()
        self._rows = self._done = 0

    def __call__(self, event: dict[str, Any]) -> None:
        if self._json:
            print(json.dumps(event, default=_plain), flush=True)
            return
        word = event["event"]
        if word == "started":
            self._rows, self._done = event["rows"], event["done"]
            kept = f", {event['done']} of them done before" if event["done"] else ""
            self._say(f"{event['table']}: {event['rows']} rows{kept}")
        elif word == "other":
            self._say(f"{event['table']}: a table of this name is for something else ({_brief(event['facts'])}): "
                      "its rows are raced anew")  # fmt: skip
        elif word == "row":
            self._done += 1
            row = event["row"]
            refused = sum(row.refused.values())
            said = f"{row.tried} tried" + (f", {refused} refused" if refused else "")
            self._say(f"[{self._done}/{self._rows}, {time.monotonic() - self._began:.0f} s] {row.tokens} tokens: "
                      f"{_gained(row)}; {said}")  # fmt: skip
        elif word == "lost":
            self._say(event["why"])
        elif word == "skipped":
            self._say(f"{event['tokens']} tokens: vLLM's own row stays: {event['why']}")
        elif word == "finished":
            print(_table(event["rows"]))
            print(event["said"])
        elif word == "table":
            print(f"{event['table']}\n  {event['said']}")
            if "why_not_measured" in event:
                print(f"  not measured here: {event['why_not_measured']}")
            if event.get("changed"):
                print(f"  made under another {', '.join(event['changed'])}")
            if event.get("rows"):
                print(_table(event["rows"]))

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    from dataclasses import asdict

    return {**asdict(value), "gain": value.gain}


def _brief(facts: dict[str, Any]) -> str:
    shape = facts.get("shape", {})
    return f"hidden {shape.get('hidden')}, top {shape.get('top_k')}, vLLM {facts.get('vllm')}, {facts.get('device')}"


def _gained(row: Any) -> str:
    if row.kept == "default":
        return f"the default stays, {row.us:.1f} µs"
    gain = f", {row.gain:.2f}× the default's {row.default_us:.1f}" if row.gain else ""
    return f"{'the shipped row' if row.kept == 'shipped' else _config(row.config)}: {row.us:.1f} µs{gain}"


def _config(config: dict[str, int]) -> str:
    tile = "x".join(str(config[f"BLOCK_SIZE_{axis}"]) for axis in "MNK")
    return f"{tile} group {config['GROUP_SIZE_M']} warps {config['num_warps']} stages {config['num_stages']}"


def _table(rows: Sequence[Any]) -> str:
    """Rows under each other."""
    report = [row if isinstance(row, dict) else _plain(row) for row in rows]
    us = lambda value: f"{value:.1f}" if value else "-"
    lines = [f"  {'tokens':>6} {'default':>9} {'shipped':>9} {'ours':>9} {'gain':>6}  config"]
    gains = []
    for row in report:
        gain = row["default_us"] / row["us"] if row.get("default_us") and row.get("us") else None
        gains += [gain] if gain else []
        shown = f"{gain:.2f}×" if gain else "-"
        times = f"{us(row.get('default_us')):>9} {us(row.get('shipped_us')):>9} {us(row.get('us')):>9}"
        config = f"{_config(row['config'])} {row.get('why', '')}".rstrip()
        lines.append(f"  {row['tokens']:>6} {times} {shown:>6}  {config}")
    if gains:
        product = 1.0
        for gain in gains:
            product *= gain
        lines.append(f"  µs of one layer; {product ** (1 / len(gains)):.3f}× the default (geometric mean)")
    return "\n".join(lines)


def _tune(asked: argparse.Namespace, argv: list[str]) -> int:
    folder = asked.output or tables.folder()
    if asked.linears:
        return _tune_linears(asked)
    if asked.sparse or asked.load_format:
        return _failed(asked, "--sparse and --load-format: are given, expected --linears beside them", BAD_INPUT)
    asked.budget = asked.budget or BUDGET
    shape = read(asked.model, asked.tp, asked.ep, asked.dtype)
    from .experts.race import DeviceLost
    from .experts.tune import TOKENS, tune

    tokens, tell = asked.tokens or list(TOKENS), _Progress(asked.json)
    about = {"model": Path(asked.model).name, "tp": asked.tp, "ep": asked.ep}
    if asked.all_gpus and asked.rows is None:
        from .experts.gpus import deal, gpus

        devices = gpus()
        if len(devices) > 1:
            about = {**about, "budget": asked.budget}
            return deal(shape, folder, tokens, argv, devices, about, tell, again=asked.again)
    try:
        tune(
            shape, folder, tokens, rows=asked.rows, budget=asked.budget, again=asked.again, most=asked.at_once,
            common=asked.candidates, whole=asked.whole, processes=asked.compilers, about=about, tell=tell,
        )  # fmt: skip
    except DeviceLost as why:
        return _goes_on(argv, str(why), tell)
    return OK


def _tune_linears(asked: argparse.Namespace) -> int:
    from . import ahead

    if asked.dtype not in (None, "bfloat16", "float16", "float32"):
        return _failed(asked, f"--dtype: is {asked.dtype}, expected bfloat16, float16 or float32", BAD_INPUT)
    path = Path(asked.model)
    model = str(path.parent) if path.name == "config.json" else asked.model
    more = {"dtype": asked.dtype, "load_format": asked.load_format}
    more = {name: value for name, value in more.items() if value is not None}
    rows = ahead.tune(model, sparse=asked.sparse, tp=asked.tp, budget=asked.budget, **more)
    if asked.json:
        for row in rows:
            print(json.dumps({"event": "linear", **row}), flush=True)
        return OK
    for row in rows:
        print(f"  {row['median_us']:>9.1f} µs  {row['problem']}: {row['winner']}")
    print(f"{len(rows)} problems raced" if rows else "nothing was raced: everything was known, or is left to vLLM")
    return OK


def _goes_on(argv: list[str], why: str, tell: _Progress) -> int:
    """Starts this program anew: its GPU is lost, rows that are done are not. Who did it is not tried again."""
    lives = int(os.environ.get(_LIVES, LIVES))
    if lives < 1:
        raise RuntimeError(f"{why}: the GPU was lost {LIVES} times, nothing more is tried")
    tell({"event": "lost", "why": f"{why}: a candidate took the GPU's context down; going on without it"})
    os.environ[_LIVES] = str(lives - 1)
    rest = [word for word in argv if word != "--again"]
    os.execv(sys.executable, [sys.executable, "-m", "warplap.vllm", *rest])


def _check(asked: argparse.Namespace) -> int:
    from .experts.check import check

    folder = asked.folder or tables.folder()
    right = check(folder, budget=asked.budget, again=True, measure=not asked.no_measure, tell=_Progress(asked.json))
    return OK if right else NO_ANSWER
