"""vLLM's real kernel under Triton's interpreter: what is proved, what is found wrong, and a whole tune, stopped and
gone on with."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("vllm or triton is not installed", allow_module_level=True)

from warplap.vllm.experts import shapes, space
from warplap.vllm.experts.tune import checked

HERE = Path(__file__).parent / "vllm_on_cpu"
MODEL = {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2, "hidden_size": 32,
         "intermediate_size": 64, "torch_dtype": "float16"}  # fmt: skip
NAME = "E=4,N=32,device_name=cpu.json"
# So small a layer is soon raced; what is common is a matter of the shipped tables.
ARGS = ["--tp", "2", "--budget", "1", "--candidates", "1", "--at-once", "3", "--json"]


def environment(tmp_path, **more):
    path = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
    return {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1",
            "WARPLAP_STORE": str(tmp_path / "store"), "VLLM_LOGGING_LEVEL": "ERROR", **more}  # fmt: skip


PROOF = """
import json, sys, torch
from warplap.callables import race as callables_race
from warplap.vllm.experts import fused, shapes, space
from warplap.vllm.experts.layer import Layer
from warplap.vllm.experts.race import Race
reports = {}
tiles = [(16, 32, 64, 1, 4, 2), (32, 64, 64, 1, 4, 2), (64, 32, 128, 16, 4, 3), (16, 64, 64, 1, 4, 5)]
configs = [dict(zip(space.AXES, tile)) for tile in tiles]
for name, shape, tokens in [
    ("plain", shapes.Shape(4, 48, 96, 2, "float16"), 9),
    ("one token", shapes.Shape(16, 48, 96, 2, "float32"), 1),  # no alignment of tokens
    ("dealt", shapes.Shape(2, 48, 96, 2, "float16", all_experts=4), 9),
    ("int8", shapes.Shape(4, 48, 96, 2, "float16", "int8_w8a16"), 9),
]:
    race = Race(Layer(shape, "cpu"), fused.Device.here(), tokens, budget=0.5)
    winner, ties = race.race("proof", configs, 0.5)
    reports[name] = {"winner": space.key(winner), "right": sorted(race.times), "wrong": race.refused and
                  {str(k): v for k, v in race.refused.items()}}
# What nobody has written is no right answer, whoever ran before.
layer = race.layer
from warplap.vllm.experts.layer import poisoned
with poisoned():
    reports["poison"] = bool(torch.empty(1000, dtype=torch.float16).isnan().all())
print(json.dumps(reports))
"""


def test_tiles_are_proved_and_a_planted_wrong_one_is_found(tmp_path):
    env = environment(tmp_path, PLANTED="num_stages=5")
    done = subprocess.run([sys.executable, "-c", PROOF], capture_output=True, text=True, env=env, timeout=1200)
    assert done.returncode == 0, done.stderr[-4000:]
    reports = json.loads(done.stdout.splitlines()[-1])
    assert reports.pop("poison") is True
    for name, report in reports.items():
        assert len(report["right"]) == 3, (name, report)
        assert list(report["wrong"]) == ["(16, 64, 64, 1, 4, 5)"], (name, report)
        assert report["wrong"]["(16, 64, 64, 1, 4, 5)"].startswith("wrong_answer"), (name, report)
        assert report["winner"][5] != 5, name


def begin(tmp_path, *more, **environs):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    command = [sys.executable, "-m", "warplap.vllm", "tune", str(tmp_path), "-o", str(tmp_path / "tables")]
    command += [*ARGS, *more]
    env = environment(tmp_path, **environs)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def ended(process):
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err[-4000:] + out[-2000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def rows_of(path):
    return {m: row for m, row in json.loads(path.read_text()).items() if m.isdecimal()}


def test_a_tune_that_is_killed_goes_on_and_a_table_is_always_whole(tmp_path):
    table, partial = tmp_path / "tables" / NAME, tmp_path / "tables" / f"warplap-{NAME[:-5]}.partial"
    process = begin(tmp_path, "--tokens", "1,2,4")
    until = time.monotonic() + 600
    while process.poll() is None and not (partial / "row-1.json").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = {path.name for path in partial.glob("row-*.json")}
    assert "row-1.json" in done and len(done) < 3, done
    assert sorted(rows_of(table)) == ["1", "2", "4"]  # those that are not raced hold vLLM's own
    assert checked(table)[0] == 0 and not (tmp_path / "tables" / f"warplap-{NAME}").exists()
    first = rows_of(table)["1"]

    events = ended(begin(tmp_path, "--tokens", "1,2,4"))
    assert events[0]["event"] == "started" and events[0]["done"] == len(done)
    raced = [event["tokens"] for event in events if event["event"] == "row"]
    assert 1 not in raced and set(raced) | {int(name[4:-5]) for name in done} == {1, 2, 4}
    assert rows_of(table)["1"] == first and not partial.exists()
    record = json.loads((tmp_path / "tables" / f"warplap-{NAME}").read_text())
    assert [row["tokens"] for row in record["rows"]] == [1, 2, 4] and record["facts"]["shape"]["hidden"] == 32
    for row in record["rows"]:
        assert rows_of(table)[str(row["tokens"])] == row["config"]
        assert row["tried"] >= 2 and row["us"] > 0 and row["default_us"] > 0
        assert row["kept"] == "default" or row["us"] < row["default_us"]
        assert space.why_not(row["config"], shapes.Shape(4, 32, 32, 2, "float16")) is None
    assert json.loads(table.read_text())["triton_version"]

    check = [sys.executable, "-m", "warplap.vllm", "check", str(tmp_path / "tables"), "--json", "--budget", "0.3"]
    done = subprocess.run(check, capture_output=True, text=True, env=environment(tmp_path), timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["right"] and report["changed"] == [] and [row["tokens"] for row in report["rows"]] == [1, 2, 4]
    assert all(row["measured"] and row["us"] > 0 and row["default_us"] > 0 for row in report["rows"])


DEAL = """
import json, sys
from pathlib import Path
from warplap.vllm import program
from warplap.vllm.experts import gpus, shapes
folder, model = Path(sys.argv[1]), sys.argv[2]
args = ["tune", model, "-o", str(folder), "--tokens", "1,2", *sys.argv[3:]]
shape = shapes.read(model, tp=2)
code = gpus.deal(shape, folder, [1, 2], args, [{}, {}], {}, program._Told(True))
sys.exit(code)
"""


@pytest.mark.skipif(not os.environ.get("WARPLAP_LONG"), reason="loads vLLM three times: WARPLAP_LONG=1")
def test_rows_are_dealt_to_processes_and_put_together(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    command = [sys.executable, "-c", DEAL, str(tmp_path / "tables"), str(tmp_path), *ARGS]
    env = environment(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(event["tokens"] for event in events if event["event"] == "row") == [1, 2]
    record = json.loads((tmp_path / "tables" / f"warplap-{NAME}").read_text())
    assert [row["tokens"] for row in record["rows"]] == [1, 2] and record["gpus"] == 2
