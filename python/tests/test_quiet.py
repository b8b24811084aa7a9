"""Nobody is warned of what is no business of theirs, and the program needs nothing but the package."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import warplap

QUIET = """
import warnings
warnings.simplefilter("always")  # an error would only send a candidate away
import torch, warplap, warplap.nn
warplap.configure(in_memory=True, budget=0.05)
x, w = torch.randn(16, 32), torch.randn(24, 32)
warplap.matmul(x, w.t()); warplap.linear(x, w, torch.randn(24), "gelu"); warplap.norm(x, torch.randn(32))
warplap.configure(in_memory=True, budget=1.0)  # long enough for torch's own block-sparse product
layer = warplap.nn.SparseLinear.from_dense(torch.nn.Linear(32, 16), torch.ones(2, 4, dtype=torch.bool), 8)
layer(x).sum().backward()
warplap.nn.Linear(32, 16, activation="relu")(x).sum().backward()
with torch.no_grad():
    layer(x)
q = torch.randn(1, 2, 8, 16)
warplap.attention(q, q, q, attn_mask=torch.ones(8, 8, dtype=torch.bool))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own, of a sparse tensor that the program makes
    a = torch.randn(32, 32).to_sparse_bsr((8, 8))
warplap.bsr_matmul(a, torch.randn(32, 4))
warplap.explain(warplap.matmul, x, w.t()); warplap.benchmark(warplap.matmul, x, w.t(), budget=0.05)
"""


def test_neither_importing_nor_calling_warns():
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def script():
    return Path(sys.executable).with_name("warplap")


def test_the_wheel_carries_the_program_in_both_forms():
    for command in ([str(script())], [sys.executable, "-m", "warplap"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
        assert (done.returncode, done.stdout.split()) == (0, ["warplap", warplap.__version__]), done
        bad = subprocess.run([*command, "tune", "gemm:m=0"], capture_output=True, text=True)
        assert bad.returncode == 2 and "'m'" in bad.stderr, bad


def test_the_program_tunes_and_loads_no_torch(tmp_path):
    place = tmp_path / "own"
    place.mkdir(mode=0o700)
    gemm = "gemm:m=16,n=16,k=16,dtype=f32"
    run = lambda *args: subprocess.run(
        [str(script()), *args, "--store", str(place), "--device", "cpu"], capture_output=True, text=True
    )
    done = run("tune", gemm, "--budget", "0.3", "--json")
    assert done.returncode == 0 and '"winner"' in done.stdout, done
    assert "torch" not in done.stdout and run("explain", gemm).returncode == 0


def test_the_licences_are_in_the_wheel():
    files = {str(path) for path in metadata.files("warplap") or []}
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert any(path.endswith(name) for path in files), files
