"""Every test has a store of its own and races for a blink."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

warnings.filterwarnings("ignore", message="Sparse BSR tensor support is in beta")

import torch  # noqa: E402

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import warplap  # noqa: E402

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(autouse=True)
def own_store(tmp_path):
    warplap.configure(store=tmp_path / "store", budget=0.05)
    warplap.set_mode("tune")
    torch.manual_seed(7)
    yield tmp_path / "store"
    warplap.set_mode("tune")


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def standin_library():
    """The stand-in for a GPU's driver and compiler; ``cargo test`` builds it, or ``cargo build -p warplap-standin``."""
    root = Path(__file__).parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "debug"
    libraries = [target / folder / "libwarplap_standin.so" for folder in ("", "deps")]
    return next((library for library in libraries if library.is_file()), None)


@pytest.fixture
def standin(monkeypatch):
    """Processes that are started meanwhile find the stand-in for a GPU's driver and compiler."""
    library = standin_library()
    if library is None:
        pytest.skip("the stand-in for the CUDA driver is not built")
    for name in ("WARPLAP_CUDA_DRIVER", "WARPLAP_NVRTC"):
        monkeypatch.setenv(name, str(library))
    monkeypatch.setenv("WARPLAP_NVML", "/nonexistent")
    return library


def near(got, right, share=2e-5):
    """Whether two tensors are equal but for rounding, with the largest value as the measure."""
    dtype = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(got.dtype, share)
    got, right = got.detach().double(), right.detach().double()
    assert got.shape == right.shape, (got.shape, right.shape)
    assert torch.equal(got.isnan(), right.isnan())
    worst = (got - right).abs().nan_to_num().max().item() if got.numel() else 0.0
    assert worst <= dtype * max(1.0, right.abs().nan_to_num().max().item() if right.numel() else 1.0), worst
    return True


class Seen(TorchDispatchMode):
    """Which operators were called, by name."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))
