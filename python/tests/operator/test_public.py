"""Arrays of other libraries go into every operator, or are refused in one sentence."""

from __future__ import annotations

import pytest
import torch
from conftest import near
from every_call import CALLS

import warplap
from warplap.arrays import dlpack


class CudaArray:
    """An array of another library on a CUDA device."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self):
        raise AssertionError("nobody reads it here")

    def __dlpack_device__(self):
        return 2, 0


@pytest.fixture
def borrowed(monkeypatch):
    """Such arrays are the tensors that they are made of: this machine may have no such device."""

    def tensor(value, name):
        if value is None:
            return None
        if not dlpack.is_on_cuda(value):
            raise ValueError(f"{name}: is not on a CUDA device, expected all arrays on one")
        return value.tensor

    monkeypatch.setattr(dlpack, "_tensor", tensor)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    return CudaArray


def results(call, **arguments):
    answer = call(**arguments)
    return answer if isinstance(answer, tuple) else (answer,)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "bsr_matmul"])
def test_arrays_of_a_cuda_device_go_into_every_operator(name, borrowed):
    least, more = CALLS[name]
    call = getattr(warplap, name)
    theirs = {k: borrowed(v) if isinstance(v, torch.Tensor) else v for k, v in least.items()}
    for own, other in zip(results(call, **least), results(call, **theirs)):
        near(other, own)
    for out in (call["out"] for call in more if "out" in call):
        kept = borrowed(torch.empty_like(out))
        assert call(**theirs, out=kept) is kept
        near(kept.tensor, results(call, **least)[0].to(out.dtype))


def test_a_sparse_matrix_is_torchs_or_scipys(borrowed):
    least, _ = CALLS["bsr_matmul"]
    with pytest.raises(TypeError, match="^b: is a CudaArray, expected tensors of one library$"):
        warplap.bsr_matmul(least["a"], borrowed(least["b"]))


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_array_is_refused_by_its_name(name):
    least, _ = CALLS[name]
    first, *others = least
    with pytest.raises((TypeError, AttributeError), match=f"^{first}: "):
        getattr(warplap, name)(**{**least, first: 3})
