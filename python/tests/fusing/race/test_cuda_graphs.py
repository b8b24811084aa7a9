"""CUDA graphs of races beside those of the program. Inductor's module of trees is there without a GPU, too."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.mutation_guard import GenerationTracker
from torch._inductor import cudagraph_trees as trees

import warplap
from warplap.fusing.race.cuda_graphs import apart, begin_anew

GPU = torch.device("cuda", 0)


@pytest.fixture
def known():
    """Trees by device, as this thread has them."""
    containers = trees.get_obj(trees.local, "tree_manager_containers")
    before = dict(containers)
    yield containers
    containers.clear()
    containers.update(before)


def test_a_race_has_trees_of_its_own_and_the_programs_come_back(known):
    mine = known[0] = trees.TreeManagerContainer(0)
    generation, marks = GenerationTracker.generation, trees.MarkStepBox.mark_step_counter
    with apart(GPU):
        assert trees.get_container(0) is not mine
        begin_anew()
        assert GenerationTracker.generation == generation + 1
    assert trees.get_container(0) is mine
    assert (GenerationTracker.generation, trees.MarkStepBox.mark_step_counter) == (generation, marks)


def test_a_race_that_fails_leaves_nothing_behind(known):
    known.pop(0, None)
    generation = GenerationTracker.generation
    with pytest.raises(ZeroDivisionError), apart(GPU):
        trees.get_container(0)
        begin_anew()
        raise ZeroDivisionError
    assert 0 not in known and GenerationTracker.generation == generation


def test_who_marks_steps_is_counted_by_his_marks(known, monkeypatch):
    monkeypatch.setattr(trees.MarkStepBox, "mark_step_counter", -5)
    with apart(GPU):
        begin_anew()
        assert trees.CUDAGraphTreeManager.get_curr_generation() == -6
    assert trees.MarkStepBox.mark_step_counter == -5


def test_without_a_race_and_without_a_gpu_nothing_is_counted(known):
    generation = GenerationTracker.generation
    begin_anew()
    with apart(None):
        begin_anew()
    assert GenerationTracker.generation == generation


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_graph_that_is_decided_in_the_middle_of_a_program_leaves_its_tensors_alone():
    first, second = (torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).cuda().half() for _ in range(2))
    x = torch.randn(32, 64, device="cuda").half().requires_grad_()
    front = torch.compile(first, mode="reduce-overhead")
    for _ in range(4):
        torch.autograd.grad(front(x).sum(), x)
    behind = warplap.fuse(second, mode="reduce-overhead")
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        middle = front(x)
        kept = middle.detach().clone()
        torch.autograd.grad(behind(middle).sum(), x)
        assert torch.equal(middle, kept)
    lanes = {lane.name: lane.us for lane in behind.decisions[0].contestants}
    assert lanes["inductor"] is not None and lanes["eager"] is not None, behind.explain()
