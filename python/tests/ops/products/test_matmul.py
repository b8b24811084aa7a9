"""matmul: right in every layout and library, errors that name the argument."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import near

import warplap

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (64, 48, 32), (1, 33, 65), (40, 1, 9)])
def test_the_product_is_right_for_every_type_and_shape(device, dtype, shape):
    m, n, k = shape
    a, b = torch.randn(m, k, device=device).to(dtype), torch.randn(k, n, device=device).to(dtype)
    near(warplap.matmul(a, b), a.double() @ b.double())


def test_layouts_are_followed_or_copied_and_never_misread():
    base = torch.randn(20, 30)
    for a in (
        base,
        base.t(),
        base[:, ::2],
        base[::3],
        base[:, 3:17],
        base.t()[::2],
        base.flip(0),
        base[:1],
        base[:, :1],
    ):
        b = torch.randn(9, a.shape[1]).t()
        near(warplap.matmul(a, b), a.double() @ b.double())
    wide = torch.randn(4, 1).expand(4, 6)
    b = torch.randn(6, 3)
    near(warplap.matmul(wide, b), wide.double() @ b.double())


def test_vectors_and_batches_fold_as_torch_folds_them():
    a, b = torch.randn(2, 3, 8), torch.randn(8, 5)
    near(warplap.matmul(a, b), torch.matmul(a, b))
    near(warplap.matmul(a[0, 0], b), torch.matmul(a[0, 0], b))
    near(warplap.matmul(a, b[:, 0]), torch.matmul(a, b[:, 0]))
    assert warplap.matmul(a[0, 0], b[:, 0]).shape == ()
    assert warplap.matmul(torch.zeros(0, 4), torch.zeros(4, 3)).shape == (0, 3)
    assert torch.equal(warplap.matmul(torch.zeros(2, 0), torch.zeros(0, 3)), torch.zeros(2, 3))


def test_out_is_written_and_returned():
    a, b, out = torch.randn(6, 7), torch.randn(7, 5), torch.full((6, 5), float("nan"))
    assert warplap.matmul(a, b, out=out) is out
    near(out, a @ b)
    padded = torch.full((6, 8), 42.0)
    warplap.matmul(a, b, out=padded[:, :5])
    near(padded[:, :5], a @ b)
    assert (padded[:, 5:] == 42).all()
    turned = torch.empty(5, 6).t()
    warplap.matmul(a, b, out=turned)
    near(turned, a @ b)


def test_numpy_in_numpy_out():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((6, 7), dtype=np.float32), rng.standard_normal((7, 5), dtype=np.float32)
    for x in (a, np.asfortranarray(a), a[::-1]):
        got = warplap.matmul(x, b)
        assert isinstance(got, np.ndarray) and got.dtype == np.float32
        np.testing.assert_allclose(got, x @ b, rtol=1e-5, atol=1e-5)
    out = np.full((6, 5), np.nan, dtype=np.float32)
    assert warplap.matmul(a, b, out=out) is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
    half = warplap.matmul(a.astype(np.float16), b.astype(np.float16))
    assert half.dtype == np.float16
    np.testing.assert_allclose(warplap.matmul(a, b[:, 0]), a @ b[:, 0], rtol=1e-5, atol=1e-5)


def test_gradients_are_torchs(device):
    a, b = torch.randn(6, 7, device=device, requires_grad=True), torch.randn(7, 5, device=device, requires_grad=True)
    for ours, theirs in ((warplap.matmul(a, b), a @ b), (warplap.matmul(a, b).sin(), (a @ b).sin())):
        mine = torch.autograd.grad(ours.sum(), (a, b))
        right = torch.autograd.grad(theirs.sum(), (a, b))
        assert all(near(m, r) for m, r in zip(mine, right))


def test_second_derivatives_work():
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    (first,) = torch.autograd.grad(warplap.matmul(a, b).pow(2).sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), b)
    (want,) = torch.autograd.grad((a @ b).pow(2).sum(), a, create_graph=True)
    near(second, torch.autograd.grad(want.sum(), b)[0], 1e-4)


@pytest.mark.parametrize(
    ("error", "name", "call"),
    [
        (TypeError, "b:", lambda: warplap.matmul(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.float16))),
        (TypeError, "a:", lambda: warplap.matmul(torch.zeros(2, 2, dtype=torch.int32), torch.zeros(2, 2))),
        (ValueError, "b:", lambda: warplap.matmul(torch.zeros(2, 3), torch.zeros(2, 3))),
        (ValueError, "b:", lambda: warplap.matmul(torch.zeros(2, 4), torch.zeros(2, 3, 4))),
        (ValueError, "b:", lambda: warplap.matmul(torch.zeros(3, 4, 3), torch.zeros(2, 3, 4))),
        (TypeError, "b:", lambda: warplap.matmul(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.float64))),
        (ValueError, "a:", lambda: warplap.matmul(torch.tensor(1.0), torch.zeros(2, 3))),
        (ValueError, "out:", lambda: warplap.matmul(torch.zeros(2, 3), torch.zeros(3, 4), out=torch.zeros(4, 2))),
        (TypeError, "out:", lambda: warplap.matmul(torch.zeros(2, 3), torch.zeros(3, 4), out=torch.zeros(2, 4).half())),
        (TypeError, "a: is a str", lambda: warplap.matmul("a", torch.zeros(3, 4))),
        (TypeError, "a:", lambda: warplap.matmul("a", "b")),
        (TypeError, "one library", lambda: warplap.matmul(np.zeros((2, 2), np.float32), torch.zeros(2, 2))),
        (ValueError, "b:", lambda: warplap.matmul(np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32))),
        (TypeError, "a:", lambda: warplap.matmul(None, None)),
        (TypeError, "a:", lambda: warplap.matmul(torch.zeros(4, 4).to_sparse(), torch.zeros(4, 4))),
    ],
)
def test_wrong_arguments_are_named(error, name, call):
    with pytest.raises(error, match=name):
        call()


def test_an_output_that_shares_memory_is_refused():
    a = torch.zeros(4, 4)
    with pytest.raises(ValueError, match="out: shares memory with a"):
        warplap.matmul(a, torch.zeros(4, 4), out=a)
    both = torch.zeros(8, 4)
    warplap.matmul(both[:4], torch.zeros(4, 4), out=both[4:])
    with pytest.raises(ValueError, match="out: shares memory with b"):
        warplap.matmul(torch.zeros(4, 4), both[:4], out=both[2:6])
    held = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match="shares memory"):
        warplap.matmul(held, np.zeros((4, 4), np.float32), out=held)
    held.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        warplap.matmul(np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32), out=held)


def test_out_with_a_gradient_is_refused():
    a = torch.zeros(2, 2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="out:"):
        warplap.matmul(a, torch.zeros(2, 2), out=torch.zeros(2, 2))
    with torch.no_grad():
        warplap.matmul(a, torch.zeros(2, 2), out=torch.zeros(2, 2))


@pytest.mark.parametrize(
    "shapes",
    [((3, 5, 7), (3, 7, 4)), ((2, 3, 5, 7), (2, 3, 7, 4)), ((2, 3, 5, 7), (3, 7, 4)), ((5, 7), (3, 7, 4)),
     ((7,), (3, 7, 4)), ((1, 5, 7), (3, 7, 4)), ((3, 5, 7), (1, 7, 4)), ((0, 5, 7), (0, 7, 4))],
)  # fmt: skip
def test_batches_on_both_sides_spread_as_torch_spreads_them(shapes, device):
    a, b = (torch.randn(shape, device=device) for shape in shapes)
    near(warplap.matmul(a, b), torch.matmul(a, b))
    out = torch.empty_like(torch.matmul(a, b))
    assert warplap.matmul(a, b, out=out) is out
    near(out, torch.matmul(a, b))


def test_a_batch_is_one_race_and_has_gradients():
    a, b = torch.randn(3, 6, 8), torch.randn(3, 8, 4)
    warplap.matmul(a, b)
    assert [row["problem"] for row in warplap.store.ls()] == ["gemm:m=6,n=4,k=8,dtype=f32,batch=3"]
    near(warplap.matmul(a.transpose(1, 2).contiguous().transpose(1, 2), b), a @ b)
    a.requires_grad_()
    warplap.matmul(a, b).sum().backward()
    near(a.grad, torch.ones(3, 6, 4) @ b.transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64])
def test_types_that_no_kernel_has_are_torchs(dtype, device):
    a, b = torch.randn(5, 7, device=device).to(dtype), torch.randn(7, 3, device=device).to(dtype)
    if dtype == torch.int64 and device == "cuda":
        pytest.skip("torch multiplies no integers there")
    assert torch.equal(warplap.matmul(a, b), a @ b)
    if dtype == torch.float64:
        assert torch.equal(warplap.linear(a, b.t(), None, "relu"), torch.relu(a @ b))
        assert np.array_equal(warplap.matmul(a.cpu().numpy(), b.cpu().numpy()), a.cpu().numpy() @ b.cpu().numpy())
    assert warplap.store.ls() == []


def test_under_autocast_products_are_torchs(device):
    x, w = torch.randn(5, 8, device=device), torch.randn(6, 8, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        for a, b in ((x, w.t()), (x.bfloat16(), w.t()), (x, w.t().bfloat16())):
            got, right = warplap.matmul(a, b), torch.matmul(a, b)
            assert got.dtype == right.dtype == torch.bfloat16 and near(got, right)
        got, right = warplap.linear(x, w.bfloat16(), torch.ones(6, device=device)), torch.nn.functional.linear(
            x, w.bfloat16(), torch.ones(6, device=device)
        )
        assert got.dtype == right.dtype and near(got, right)
        wide = warplap.matmul(x.double(), w.t().double())
        assert wide.dtype == torch.matmul(x.double(), w.t().double()).dtype


def test_mypy_rejects_what_is_no_array(tmp_path):
    pytest.importorskip("mypy")
    checked = tmp_path / "checked.py"
    checked.write_text("import numpy, warplap\nwarplap.matmul(numpy.ones((2, 2)), numpy.ones((2, 2)))\n")
    refused = tmp_path / "refused.py"
    refused.write_text('import warplap\nwarplap.matmul(1, "x")\n')
    run = lambda path: subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert run(checked).returncode == 0, run(checked).stdout
    assert run(refused).returncode == 1 and "matmul" in run(refused).stdout


def test_the_package_is_typed_as_it_says(tmp_path):
    pytest.importorskip("mypy")
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("what vLLM says of its own types is not ours")
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--cache-dir", str(tmp_path), "-p", "warplap"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stdout[-3000:]
