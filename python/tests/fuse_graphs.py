"""Graphs that tests of fusing trace, and what stands in for slow or wrong parts of them."""

from __future__ import annotations

import time

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd

import warplap
from warplap.fusing import plan
from warplap.fusing.matching.match import Match
from warplap.fusing.matching.node_kinds import word
from warplap.fusing.race import forms, predict

r = torch.randn

ACTIVATIONS = {
    None: lambda y: y,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


class Rms(torch.nn.Module):
    """As Llama's models write it out."""

    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)


class Block(torch.nn.Module):
    """A transformer's block with a norm by hand, a layer norm, attention written out, a gated and a plain layer."""

    def __init__(self, width=32, heads=2, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.first, self.second, self.third = Rms(width), torch.nn.LayerNorm(width), torch.nn.RMSNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width, bias=False)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.drop = torch.nn.Dropout(dropout)

    def forward(self, x, before):
        x = x + before
        b, s, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        seen = torch.softmax(scores, dim=-1) @ v + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, s, d))
        x = x + self.drop(self.down(F.gelu(self.up(self.second(x)))))
        return self.third(x)


def traced(fn, *args):
    """The graph that torch's tracer makes of a function, and its inputs."""
    graphs = []

    def keep(module, inputs):
        graphs.append((module, inputs))
        return module.forward

    torch._dynamo.reset()
    torch.compile(fn, backend=keep, fullgraph=True)(*args)
    return graphs[0]


@pytest.fixture
def uncompiled(monkeypatch):
    """Inductor's place taken by the graph itself: no compiler runs, everything else is real."""
    torch._dynamo.reset()
    monkeypatch.setattr(forms.Inductor, "here", lambda self, module, inputs: module.forward)
    warplap.configure(in_memory=True, budget=0.5)
    predict.forget()


@pytest.fixture
def planted(monkeypatch):
    """A pattern for relu, of whoever is asked for."""

    def plant(call):
        def look(nodes, frozen):
            for node in nodes:
                if word(node) == "relu":
                    yield Match("planted", (node,), (node,), call, (node.args[0],))

        monkeypatch.setattr(plan, "fusion_matches", look)

    return plant


def wrong_relu(x):
    return x.relu() + 1e-2


def slow_relu(x):
    time.sleep(0.01)
    return x.relu()


def no_relu(x):
    raise NotImplementedError("not for me")


def quick_relu(x):
    return x.relu()


def nodes_of(fn, *args):
    """The operators in the graphs that a compiler is given for a function, and what the function gives."""
    graphs = []

    def keep(module, inputs):
        graphs.append([str(n.target) for n in module.graph.nodes if n.op == "call_function"])
        return module

    torch._dynamo.reset()
    got = torch.compile(fn, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True)(*args)
    return graphs, got
