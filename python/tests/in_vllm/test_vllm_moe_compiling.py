"""vLLM's real kernel, compiled ahead for a GPU that is not here: the rule for shared memory, the processes that
compile, and configs that take the compiler down."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("vllm or triton is not installed", allow_module_level=True)

HERE = Path(__file__).parent / "vllm_on_cpu"
LONG = bool(os.environ.get("WARPLAP_LONG"))


def script(code, tmp_path, *arguments, timeout=1200, **environment):
    """What a process with vLLM's Triton kernels prints."""
    path = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
    env = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "TRITON_CACHE_DIR": str(tmp_path / "triton"),
           "VLLM_LOGGING_LEVEL": "ERROR", **environment}  # fmt: skip
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=timeout)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


RULE = """
import itertools, json, random, sys
import made_up_gpu
import triton
from warplap.vllm.experts import compile_ahead, fused, shapes, space as experts_space
from warplap.vllm.experts.layer import Layer
from warplap.vllm.experts.race import Race

shared = {}

class Compiler(compile_ahead.Compiler):
    def _judged(self, answer):
        shared[answer["id"]] = answer.get("shared")
        return super()._judged(answer)

every = [dict(zip(experts_space.AXES, values)) for values in itertools.product(*experts_space.AXES.values())]
compiler, reports = Compiler(2), []
for arch, types, count in json.loads(sys.argv[1]):
    made_up_gpu.use(arch)
    shape = shapes.Shape(4, 256, 512, 2, *types)
    configs = random.Random(arch).sample(every, count)
    race = Race(Layer(shape, "cpu"), fused.Device("NVIDIA_made_up", "cpu", arch, None), 64, compiler=compiler)
    race.ahead(configs)
    report = {"arch": arch, "types": types, "same": 0, "other": [], "refused": [], "kernels": 0, "hits": []}
    right = []
    for config in configs:
        names = race.names[experts_space.key(config)]
        report["kernels"] += len(names)
        refused = compiler.wait(names)
        if refused:
            report["refused"].append([experts_space.key(config), refused])
            continue
        right.append(config)
        for name in names:
            taken, meant = shared[name], experts_space.shared_memory(config, shape, arch)
            if taken == meant:
                report["same"] += 1
            else:
                report["other"].append([experts_space.key(config), taken, meant])
    # The first launch finds what was compiled: nothing is compiled twice.
    triton.knobs.compilation.listener = lambda **about: report["hits"].append(about["cache_hit"])
    for config in right[:3]:
        try:
            race.layer.run(config, *race.arguments)
        except Exception:  # the made-up GPU launches nothing
            pass
    reports.append(report)
compiler.end()
print(json.dumps(reports))
"""


def test_the_rule_for_shared_memory_is_the_compilers(tmp_path):
    many = 4 if LONG else 1
    asked = [(90, ["bfloat16"], 10), (90, ["bfloat16", "int8_w8a16"], 3), (80, ["float16"], 3), (100, ["bfloat16"], 2)]
    reports = script(RULE, tmp_path, json.dumps([(arch, types, many * count) for arch, types, count in asked]))
    assert len(reports) == len(asked)
    for report in reports:
        print(report)
        # Triton 3.6 itself fails on some configs of 256 rows with 4 warps.
        assert all(name[0] == 256 and name[4] == 4 for name, _ in report["refused"]), report
        assert report["other"] == [] and report["same"] + 2 * len(report["refused"]) == report["kernels"] > 0, report
        assert report["hits"] and all(report["hits"]), report


SURVIVES = """
import json, sys, time
import made_up_gpu
made_up_gpu.use(90)
from warplap.vllm.experts import compile_ahead, fused, shapes, space as experts_space
from warplap.vllm.experts.layer import Layer
from warplap.vllm.experts.race import Race
shape = shapes.Shape(4, 256, 512, 2)
race = Race(Layer(shape, "cpu"), fused.Device("NVIDIA_made_up", "cpu", 90, None), 64)
good = dict(zip(experts_space.AXES, (16, 32, 64, 1, 4, 2)))
def orders(config):
    with compile_ahead.recording() as compile_orders:
        race.layer.run(config, *(a[:1] if i else a for i, a in enumerate(race.arguments)))
    return compile_orders
report = {"kernels": len(orders(good))}
compiler = compile_ahead.Compiler(2, room=200)
down = {**orders(good)[0], "module": "takes_the_compiler_down"}
report["crash"] = compiler.wait(compiler.order([down]))
report["room"] = compiler.wait(compiler.order(orders(good)))
wrong = dict(orders(good)[0])
wrong["data"] = wrong["data"].replace('"bf16"', '"no_such_type"').replace('*bf16', '*bf17')
report["wrong"] = compiler.wait(compiler.order([wrong]))
compiler.end()
hasty = compile_ahead.Compiler(2, patience=0.01)
report["late"] = hasty.wait(hasty.order(orders({**good, "GROUP_SIZE_M": 16})))
hasty._process.kill()  # whoever loses its compilers goes on without
report["gone"] = hasty.wait(hasty.order(orders({**good, "GROUP_SIZE_M": 32})))
print(json.dumps(report))
"""


def test_what_takes_the_compiler_down_is_refused_and_takes_nobody_with_it(tmp_path):
    report = script(SURVIVES, tmp_path)
    assert report["kernels"] == 2  # with the routing's weights and without
    assert report["crash"][0] == "does_not_build" and "SIGABRT" in report["crash"][1]
    assert report["room"][0] == "over_limits" and "there are 200" in report["room"][1]
    assert report["wrong"][0] == "does_not_build"
    assert report["late"][0] == "timed_out"
    assert report["gone"] is None
