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
import itertools, json, os, random, sys
import made_up_gpu
made_up_gpu.use(int(sys.argv[1]))
import triton
from warplap.vllm import compiling, fused, legal, shapes
from warplap.vllm.layer import Layer
from warplap.vllm.moe import Race
arch, count = int(sys.argv[1]), int(sys.argv[2])
shape = shapes.Shape(4, 256, 512, 2, *json.loads(sys.argv[3]))
device = fused.Device("NVIDIA_made_up", "cpu", arch, None)
random.seed(arch)
every = [dict(zip(legal.AXES, values)) for values in itertools.product(*legal.AXES.values())]
configs = random.sample(every, count)
heard = []
class Compiler(compiling.Compiler):
    def _judged(self, answer):
        heard.append((json.loads(answer["id"]), answer))
        return super()._judged(answer)
compiler = Compiler(2)
race = Race(Layer(shape, "cpu"), device, 64, compiler=compiler)
told = {"same": 0, "other": [], "refused": 0, "kernels": 0}
race.ahead(configs)
refusals = {legal.key(c): compiler.wait(race.names[legal.key(c)]) for c in configs}
shared = {json.dumps(order, sort_keys=True): answer.get("shared") for order, answer in heard
          for order in [{k: v for k, v in order.items() if k != "id"}]}
for config in configs:
    names = race.names[legal.key(config)]
    told["kernels"] += len(names)
    if refusals[legal.key(config)]:
        told["refused"] += 1
        told["why"] = refusals[legal.key(config)]
        continue
    for name in names:
        taken, meant = shared[name], legal.shared_memory(config, shape, arch)
        if taken == meant:
            told["same"] += 1
        else:
            told["other"].append([config, taken, meant])
# The first launch finds what was compiled: nothing is compiled twice.
hits = []
triton.knobs.compilation.listener = lambda **about: hits.append(about["cache_hit"])
for config in [c for c in configs if not refusals[legal.key(c)]][:3]:
    try:
        race.layer.run(config, *race.arguments)
    except Exception:  # the made-up GPU launches nothing
        pass
told["hits"] = hits
compiler.end()
print(json.dumps(told))
"""


@pytest.mark.parametrize(("arch", "types", "count"), [
    (90, ["bfloat16"], 24 if LONG else 6),
    (90, ["bfloat16", "int8_w8a16"], 8 if LONG else 2),
    (80, ["float16"], 8 if LONG else 2),
    (100, ["bfloat16"], 8 if LONG else 2),
])  # fmt: skip
def test_the_rule_for_shared_memory_is_the_compilers(arch, types, count, tmp_path):
    told = script(RULE, tmp_path, arch, count, json.dumps(types))
    print(told)
    assert told["other"] == [] and told["same"] + 2 * told["refused"] >= told["kernels"] >= count
    assert told["refused"] <= count // 3 + 1
    assert told["hits"] and all(told["hits"])


SURVIVES = """
import json, sys, time
import made_up_gpu
made_up_gpu.use(90)
from warplap.vllm import compiling, fused, legal, shapes
from warplap.vllm.layer import Layer
from warplap.vllm.moe import Race
shape = shapes.Shape(4, 256, 512, 2)
race = Race(Layer(shape, "cpu"), fused.Device("NVIDIA_made_up", "cpu", 90, None), 64)
good = dict(zip(legal.AXES, (16, 32, 64, 1, 4, 2)))
def orders(config):
    with compiling.recording() as found:
        race.layer.run(config, *(a[:1] if i else a for i, a in enumerate(race.arguments)))
    return found
told = {"kernels": len(orders(good))}
compiler = compiling.Compiler(2, room=200)
down = {**orders(good)[0], "module": "takes_the_compiler_down"}
told["crash"] = compiler.wait(compiler.order([down]))
told["room"] = compiler.wait(compiler.order(orders(good)))
wrong = dict(orders(good)[0])
wrong["data"] = wrong["data"].replace('"bf16"', '"no_such_type"').replace('*bf16', '*bf17')
told["wrong"] = compiler.wait(compiler.order([wrong]))
compiler.end()
hasty = compiling.Compiler(2, patience=0.01)
told["late"] = hasty.wait(hasty.order(orders({**good, "GROUP_SIZE_M": 16})))
hasty._process.kill()  # whoever loses its compilers goes on without
told["gone"] = hasty.wait(hasty.order(orders({**good, "GROUP_SIZE_M": 32})))
print(json.dumps(told))
"""


def test_what_takes_the_compiler_down_is_refused_and_takes_nobody_with_it(tmp_path):
    told = script(SURVIVES, tmp_path)
    assert told["kernels"] == 2  # with the routing's weights and without
    assert told["crash"][0] == "does_not_build" and "SIGABRT" in told["crash"][1]
    assert told["room"][0] == "over_limits" and "there are 200" in told["room"][1]
    assert told["wrong"][0] == "does_not_build"
    assert told["late"][0] == "timed_out"
    assert told["gone"] is None
