"""bsr_matmul and SparseLinear: torch's and SciPy's matrices, gradients, training, and indices that are no indices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import near

import warplap


def sparse(m, k, bs, share=0.4, dtype=torch.float32, device="cpu", index=torch.int64):
    mask = torch.rand(m // bs, k // bs) < share
    mask[0, 0] = True
    dense = torch.randn(m, k) * mask.repeat_interleave(bs, 0).repeat_interleave(bs, 1)
    a = dense.to(dtype).to_sparse_bsr((bs, bs))
    a = torch.sparse_bsr_tensor(a.crow_indices().to(index), a.col_indices().to(index), a.values(), (m, k))
    return a.to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("sizes", [(64, 48, 5, 16), (8, 8, 1, 8), (128, 256, 33, 64)])
def test_the_product_is_that_of_the_dense_matrix(device, dtype, index, sizes):
    m, k, n, bs = sizes
    a = sparse(m, k, bs, dtype=dtype, device=device, index=index)
    b = torch.randn(k, n, device=device).to(dtype)
    near(warplap.bsr_matmul(a, b), a.to_dense().double() @ b.double())
    near(warplap.bsr_matmul(a, b[:, 0]), a.to_dense().double() @ b[:, 0].double())
    near(
        warplap.bsr_matmul(a, torch.randn(n, k, device=device).to(dtype).t() * 0 + b),
        a.to_dense().double() @ b.double(),
    )
    out = torch.full((m, n), float("nan"), device=device, dtype=dtype)
    assert warplap.bsr_matmul(a, b, out=out) is out
    near(out, a.to_dense().double() @ b.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("blocks", [(16, 32), (32, 16), (8, 24), (64, 32)])
def test_blocks_need_not_be_square_and_out_may_be_column_major(device, dtype, blocks):
    rows, columns = blocks
    m, k, n = 4 * rows, 6 * columns, 40
    mask = torch.rand(4, 6) < 0.5
    mask[0, 0] = True
    dense = torch.randn(m, k) * mask.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    a, b = dense.to(dtype).to_sparse_bsr(blocks).to(device), torch.randn(k, n, device=device).to(dtype)
    right = a.to_dense().double() @ b.double()
    near(warplap.bsr_matmul(a, b), right)
    out = torch.full((n, m), float("nan"), device=device, dtype=dtype).t()
    assert warplap.bsr_matmul(a, b, out=out) is out
    near(out, right)
    wide = b.detach().requires_grad_()
    values = a.values().detach().requires_grad_()
    c = torch.ops.warplap.bsr_matmul(a.crow_indices(), a.col_indices(), values, m, k, wide)
    c.backward(torch.ones_like(c))
    near(wide.grad, a.to_dense().double().t() @ torch.ones_like(c).double())
    near(
        values.grad, (torch.ones_like(c).double() @ b.double().t() * (a.to_dense() != 0)).to_sparse_bsr(blocks).values()
    )


def test_an_empty_matrix_gives_zeros():
    a = torch.zeros(32, 32).to_sparse_bsr((16, 16))
    assert a.values().shape[0] == 0
    assert (warplap.bsr_matmul(a, torch.randn(32, 3)) == 0).all()


def test_a_changed_matrix_is_read_again():
    a, b = sparse(64, 64, 16), torch.randn(64, 7)
    near(warplap.bsr_matmul(a, b), a.to_dense() @ b)
    a.values().mul_(3)
    near(warplap.bsr_matmul(a, b), a.to_dense() @ b)
    other = sparse(64, 64, 16, share=0.9)
    a.data = other
    near(warplap.bsr_matmul(a, b), a.to_dense() @ b)
    crow, col, values = a.crow_indices().clone(), a.col_indices().clone(), a.values().clone()
    c = torch.sparse_bsr_tensor(crow, col, values, (64, 64))
    near(warplap.bsr_matmul(c, b), c.to_dense() @ b)
    row = int(crow[1])
    if row > 1:
        c.col_indices()[:row] = torch.arange(row)
        near(warplap.bsr_matmul(c, b), c.to_dense() @ b)


def test_indices_that_are_none_are_an_error_and_no_crash():
    ok = torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.randn(2, 16, 16)
    b = torch.randn(32, 3)
    for crow, col in [
        (torch.tensor([0, 1, 2]), torch.tensor([0, 99])),
        (torch.tensor([0, 1, 2]), torch.tensor([0, -1])),
        (torch.tensor([0, 2, 1]), ok[1]),
        (torch.tensor([0, 1, 900]), ok[1]),
        (torch.tensor([0, 2, 2]), torch.tensor([1, 0])),
        (torch.tensor([0, 2, 2]), torch.tensor([1, 1])),
        (torch.tensor([0, 1, 2**40]), ok[1]),
    ]:
        a = torch.sparse_bsr_tensor(crow, col, ok[2], (32, 32), check_invariants=False)
        with pytest.raises(ValueError, match="a:|indices"):
            warplap.bsr_matmul(a, b)


def test_scipys_matrices_on_the_cpu():
    scipy = pytest.importorskip("scipy.sparse")
    a = sparse(64, 48, 16)
    parts = a.values().numpy(), a.col_indices().numpy(), a.crow_indices().numpy()
    b = np.random.default_rng(3).standard_normal((48, 5)).astype(np.float32)
    for make in (scipy.bsr_array, scipy.bsr_matrix):
        got = warplap.bsr_matmul(make(parts, shape=(64, 48)), b)
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, a.to_dense().numpy() @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeError, match="a:"):
        warplap.bsr_matmul(scipy.eye(4, format="csr", dtype=np.float32), np.zeros((4, 2), np.float32))


def test_gradients_are_those_of_the_dense_product(device):
    a = sparse(64, 48, 16, device=device)
    values = a.values().clone().requires_grad_()
    b = torch.randn(48, 6, device=device, requires_grad=True)
    whole = torch.sparse_bsr_tensor(a.crow_indices(), a.col_indices(), values, (64, 48))
    weight = torch.randn(64, 6, device=device)
    (warplap.bsr_matmul(whole, b) * weight).sum().backward()
    dense = a.to_dense().requires_grad_()
    twin = b.detach().clone().requires_grad_()
    ((dense @ twin) * weight).sum().backward()
    near(b.grad, twin.grad)
    blocks = dense.grad.reshape(4, 16, 3, 16).transpose(1, 2)
    rows = torch.repeat_interleave(torch.arange(4, device=device), a.crow_indices().diff())
    near(values.grad, blocks[rows, a.col_indices()])


def test_gradients_of_gradients_are_those_of_the_dense_product(device):
    a = sparse(32, 48, 16, device=device)
    values, b = a.values().clone().requires_grad_(), torch.randn(48, 5, device=device, requires_grad=True)

    def total(product, *inputs):
        first = torch.autograd.grad((product**3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), inputs)

    # Through the parts: torch's own sparse tensors are differentiated once.
    product = torch.ops.warplap.bsr_matmul(a.crow_indices(), a.col_indices(), values, 32, 48, b)
    mine = total(product, values, b)
    rows = torch.repeat_interleave(torch.arange(2, device=device), a.crow_indices().diff())
    filled = torch.zeros(2, 3, 16, 16, device=device).index_put((rows, a.col_indices()), values)
    right = total(filled.transpose(1, 2).reshape(32, 48) @ b, values, b)
    assert all(near(m, r, 1e-3) for m, r in zip(mine, right))


def test_a_sparse_layer_is_its_dense_twin_and_trains(device):
    mask = torch.rand(4, 3) < 0.6
    mask[0, 0] = True
    layer = warplap.SparseLinear.from_dense(torch.nn.Linear(48, 64), mask, block=16).to(device)
    x = torch.randn(2, 10, 48, device=device)
    near(layer(x), layer.to_dense()(x))
    assert abs(layer.density - mask.float().mean().item()) < 1e-6
    target = torch.randn(2, 10, 64, device=device)
    step = torch.optim.SGD(layer.parameters(), lr=0.5)
    first = None
    for _ in range(30):
        step.zero_grad()
        loss = torch.nn.functional.mse_loss(layer(x), target)
        loss.backward()
        step.step()
        first = first or loss.item()
    assert loss.item() < 0.8 * first
    copy = warplap.SparseLinear.from_dense(torch.nn.Linear(48, 64), mask, block=16).to(device)
    copy.load_state_dict(layer.state_dict())
    near(copy(x), layer(x))


def test_a_sparse_layer_lies_in_memory_as_its_dense_twin_does(device):
    mask = torch.rand(4, 3) < 0.6
    mask[0, 0] = True
    layer = warplap.SparseLinear.from_dense(torch.nn.Linear(48, 64), mask, block=16).to(device)
    dense = layer.to_dense()
    drawn = lambda *shape: torch.randn(*shape, device=device)
    for x in (drawn(2, 5, 48), drawn(48, 7).t(), drawn(48)):
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, right = layer(ours), dense(theirs)
        assert out.shape == right.shape and out.stride() == right.stride()
        near(out, right)
        along = torch.randn_like(right)
        got = torch.autograd.grad(out, [ours, layer.values, layer.bias], along, create_graph=True)
        wanted = torch.autograd.grad(right, [theirs, dense.weight, dense.bias], along, create_graph=True)
        near(got[0], wanted[0])
        near(got[2], wanted[2])
        assert got[0].is_contiguous() and got[1].is_contiguous()
        blocks = wanted[1].reshape(4, 16, 3, 16).transpose(1, 2)[mask]
        near(got[1], blocks)
        # Gradients of gradients: of what was multiplied, and of the weight.
        second = [torch.autograd.grad(g.square().sum(), x)[0] for g, x in ((got[1], ours), (blocks, theirs))]
        near(*second, 1e-3)
    with torch.autocast(device, torch.bfloat16):
        assert layer(drawn(3, 48)).dtype is torch.bfloat16
    empty = layer(drawn(0, 48))
    assert empty.shape == (0, 64)


def test_wrong_arguments_are_named():
    a, b = sparse(64, 48, 16), torch.randn(48, 3)
    for error, name, call in [
        (TypeError, "a:", lambda: warplap.bsr_matmul(torch.zeros(4, 4), torch.zeros(4, 4))),
        (TypeError, "a:", lambda: warplap.bsr_matmul(torch.zeros(4, 4).to_sparse_csr(), torch.zeros(4, 4))),
        (TypeError, "b:", lambda: warplap.bsr_matmul(a, b.half())),
        (ValueError, "b:", lambda: warplap.bsr_matmul(a, b[:-1])),
        (ValueError, "b:", lambda: warplap.bsr_matmul(a, b[None])),
        (ValueError, "a:", lambda: warplap.bsr_matmul(torch.zeros(8, 8).to_sparse_bsr((4, 4)), torch.zeros(8, 2))),
        (ValueError, "a:", lambda: warplap.bsr_matmul(torch.ones(16, 8).to_sparse_bsr((16, 4)), torch.zeros(8, 2))),
        (
            TypeError,
            "a:",
            lambda: warplap.bsr_matmul(torch.ones(16, 16).long().to_sparse_bsr((8, 8)), torch.zeros(16, 2).long()),
        ),
        (ValueError, "out:", lambda: warplap.bsr_matmul(a, b, out=torch.zeros(3, 64))),
        (TypeError, "one library", lambda: warplap.bsr_matmul(a, b.numpy())),
        (
            ValueError,
            "mask:",
            lambda: warplap.SparseLinear.from_dense(torch.nn.Linear(48, 64), torch.ones(2, 2).bool(), 16),
        ),
        (
            ValueError,
            "block:",
            lambda: warplap.SparseLinear.from_dense(torch.nn.Linear(48, 64), torch.ones(2, 2).bool(), 12),
        ),
    ]:
        with pytest.raises(error, match=name):
            call()


def test_double_precision_is_torchs():
    dense = torch.randn(16, 32, dtype=torch.float64)
    a, b = dense.to_sparse_bsr((8, 8)), torch.randn(32, 5, dtype=torch.float64)
    torch.testing.assert_close(warplap.bsr_matmul(a, b), dense @ b)
    torch.testing.assert_close(warplap.bsr_matmul(a, b[:, 0]), dense @ b[:, 0])
    out = torch.empty(16, 5, dtype=torch.float64)
    assert warplap.bsr_matmul(a, b, out=out) is out
    torch.testing.assert_close(out, dense @ b)
    with pytest.raises(TypeError, match="^a: "):
        warplap.bsr_matmul(a, b.float())
