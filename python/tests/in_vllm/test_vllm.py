"""The entry point for vLLM: silent without vLLM, or with nothing to offer. A package named vllm that is empty
but for the platform stands for one here; the real one is in test_vllm_linears.py and those beside it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys

import pytest

import warplap.vllm

if importlib.util.find_spec("vllm") is not None:
    pytest.skip("vLLM is installed", allow_module_level=True)

NAME = "E=8,N=64,device_name=NVIDIA_H200.json"


PLATFORM = """
class current_platform:
    def get_device_name():
        {}
"""


def run(tmp_path, with_vllm, tables, name="return 'NVIDIA H200 NVL'", parts="tables of experts", **environment):
    """What a process with or without a package named vllm finds after the plugin has run twice."""
    if with_vllm:
        (tmp_path / "vllm").mkdir(exist_ok=True)
        (tmp_path / "vllm" / "__init__.py").write_text("")
        (tmp_path / "vllm" / "platforms.py").write_text(PLATFORM.format(name))
    folder = tmp_path / "tables"
    folder.mkdir(exist_ok=True)
    if tables:
        (folder / NAME).write_text("{}")
    code = f"""if True:
        import os, warplap.vllm.plugin as plugin
        plugin.PARTS = [part for part in plugin.PARTS if part[0] in {parts!r}]
        plugin.register(); plugin.register()
        print(os.environ.get('VLLM_TUNED_CONFIG_FOLDER'))"""
    env = {k: v for k, v in os.environ.items() if k != "VLLM_TUNED_CONFIG_FOLDER"}
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env.get("PYTHONPATH", "")])
    env |= {"WARPLAP_VLLM_TABLES": str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stderr == "" or "linears" in parts, done.stderr
    return done.stdout.strip() + done.stderr


def test_tables_are_offered_where_vllm_is_there_and_nobody_has_said_otherwise(tmp_path):
    assert run(tmp_path, False, True) == "None"
    assert run(tmp_path, True, True) == str(tmp_path / "tables")
    assert run(tmp_path, True, True, VLLM_TUNED_CONFIG_FOLDER="/elsewhere") == "/elsewhere"


def test_tables_of_another_device_are_not_offered(tmp_path):
    assert run(tmp_path, True, True, "return 'NVIDIA H100 80GB HBM3'") == "None"
    assert run(tmp_path, True, True, "return 'NVIDIA'") == "None"
    assert run(tmp_path, True, True, "raise NotImplementedError") == "None"


def test_without_tables_nothing_is_said(tmp_path):
    assert run(tmp_path, True, False) == "None"
    assert run(tmp_path, True, False, WARPLAP_VLLM_TABLES=str(tmp_path / "nowhere")) == "None"


def test_a_part_that_fails_is_left_out_and_the_others_are_offered(tmp_path):
    said = run(tmp_path, True, True, parts="tables of experts, linears")
    assert said.startswith(str(tmp_path / "tables"))
    assert "warplap for vLLM: linears: left out: ImportError" in said


def test_the_package_names_the_entry_point():
    try:
        entry_points = importlib.metadata.distribution("warplap").entry_points
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")
    points = [p for p in entry_points if p.group == "vllm.general_plugins"]
    assert [p.value for p in points] == ["warplap.vllm:register"]
    assert points[0].load() is warplap.vllm.register
