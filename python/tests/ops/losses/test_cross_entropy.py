"""cross_entropy: right in all its forms, with the gradient beside the logits or in their place."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from conftest import near
from right_answers import right_entropy

import warplap

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FORMS = list(itertools.product((0.0, 0.1), (0.0, 1e-2), ("mean", "sum", "none")))


@pytest.mark.parametrize("smoothing,zloss,reduction", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_and_its_gradient_are_right(smoothing, zloss, reduction, dtype, device):
    for kind, ignore in ((torch.int64, -100), (torch.int32, 3)):
        x = (torch.randn(2, 9, 50, device=device) * 3).to(dtype).requires_grad_(True)
        labels = torch.randint(0, 50, (2, 9), device=device).to(kind)
        labels[0, 2:5] = ignore
        options = {"ignore_index": ignore, "label_smoothing": smoothing, "z_loss": zloss, "reduction": reduction}
        right = right_entropy(x, labels, ignore, smoothing, zloss, reduction)
        with torch.no_grad():
            value = warplap.cross_entropy(x, labels, **options)
        assert value.dtype == torch.float32 and value.shape == right.shape
        near(value, right)
        up = torch.randn_like(right)
        trained = warplap.cross_entropy(x, labels, **options)
        near(trained, right)
        (expected,) = torch.autograd.grad(right, x, up)
        (got,) = torch.autograd.grad(trained, x, up.float())
        assert got.dtype == dtype
        near(got, expected)
        h = x * 1.0
        (got,) = torch.autograd.grad(warplap.cross_entropy(h, labels, inplace=True, **options), x, up.float())
        near(got, expected)


def test_the_gradient_takes_the_place_of_the_logits_where_it_may(device):
    x = torch.randn(6, 20, device=device, requires_grad=True)
    labels = torch.arange(6, device=device)
    h = x + 0.0
    before = h.detach().clone()
    warplap.cross_entropy(h, labels, inplace=True)
    assert not torch.equal(h.detach(), before)
    h = x + 0.0
    warplap.cross_entropy(h, labels)
    assert torch.equal(h.detach(), before)


def test_a_label_that_is_no_column_makes_the_loss_nan(device):
    x, labels = torch.randn(3, 4, device=device), torch.tensor([1, 4, -100], device=device)
    losses = warplap.cross_entropy(x, labels, reduction="none")
    assert losses[1].isnan() and losses[2] == 0 and losses[0] > 0
    assert warplap.cross_entropy(x, labels).isnan()


@pytest.mark.parametrize("by", [1.0, 0.25])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inplace", [False, True])
def test_a_gradient_is_scaled_in_its_place_and_kept_whole_where_it_is_asked_for_again(by, dtype, inplace, device):
    labels = torch.arange(6, device=device) % 5
    leaf = torch.randn(6, 40, device=device).to(dtype).requires_grad_()
    right = torch.autograd.grad(F.cross_entropy(leaf.double(), labels) * by, leaf)[0].double()
    for retain in (False, True):
        logits = leaf * 1.0
        before = logits.detach().clone()
        loss = warplap.cross_entropy(logits, labels, inplace=inplace) * by
        assert inplace or torch.equal(logits.detach(), before), "logits are the caller's"
        first = torch.autograd.grad(loss, leaf, retain_graph=retain)[0].double()
        near(first, right, 2e-2 if dtype != torch.float32 else 1e-5)
        if retain:
            near(torch.autograd.grad(loss, leaf)[0].double(), first, 1e-6)


def test_many_gradients_at_once_go_through_a_cross_entropy():
    x = torch.randn(6, 40, requires_grad=True)
    labels, grad_outputs = torch.arange(6), torch.tensor([1.0, 0.5, 2.0])
    many = lambda loss: torch.autograd.grad(loss, x, grad_outputs, is_grads_batched=True)[0]
    near(many(warplap.cross_entropy(x, labels)), many(F.cross_entropy(x, labels)), 1e-5)
