"""Models that nobody here wrote, as their library makes them: random weights, two layers, on the CPU."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from conftest import near
from fuse_graphs import uncompiled  # noqa: F401

import warplap
from warplap.fusing.matching.node_kinds import word
from warplap.fusing.plan import Plan
from warplap.fusing.race import forms

transformers = pytest.importorskip("transformers")


def llama(**other):
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=97, max_position_embeddings=64, **{"num_hidden_layers": 2, **other},
    )  # fmt: skip
    torch.manual_seed(3)
    return transformers.LlamaForCausalLM(config).eval()


def bert():
    config = transformers.BertConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=97,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(3)
    return transformers.BertForMaskedLM(config).eval()


def words(rows=2, tokens=12):
    torch.manual_seed(4)
    return torch.randint(0, 97, (rows, tokens))


@pytest.fixture
def compiled():
    torch._dynamo.reset()


@pytest.mark.parametrize("make, kinds", [(llama, ("norm", "linear", "attention", "rope")), (bert, ("norm", "linear"))])
def test_a_model_of_transformers_is_raced(make, kinds, uncompiled):
    model = make()
    fused = warplap.fuse(model)
    with torch.no_grad():
        near(fused(input_ids=words(), use_cache=False).logits, model(input_ids=words(), use_cache=False).logits, 1e-4)
    (decision,) = fused.decisions
    assert decision.how == "raced", fused.explain()
    raced = [lane.name for lane in decision.contestants]
    assert {"inductor", "eager"} < set(raced), raced
    for kind in kinds:
        assert any(kind in name for name in decision.plan.kinds), (kind, list(decision.plan.kinds))
    assert "raced as a whole" in fused.explain()


def test_a_step_of_training_is_raced_and_right(uncompiled):
    model, stock = llama().train(), llama().train()
    fused = warplap.fuse(model)
    for each in (fused, stock):
        each(input_ids=words(), labels=words(), use_cache=False).loss.backward()
    assert "step=true" in fused.decisions[0].key and fused.decisions[0].how == "raced", fused.explain()
    for mine, right in zip(model.parameters(), stock.parameters()):
        near(mine.grad, right.grad, 1e-3)


def test_what_is_fused_is_the_model_in_every_other_respect(uncompiled):
    model = llama()
    fused = warplap.fuse(model)
    assert isinstance(fused, transformers.LlamaForCausalLM) and fused.config is model.config
    assert type(fused).__name__ == "LlamaForCausalLM"
    assert list(fused.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(fused.parameters(), model.parameters()))
    assert fused.train() is fused and model.training and not fused.eval().training
    assert fused.to(torch.float64) is fused and model.dtype == torch.float64
    fused.to(torch.float32)
    assert "not called yet" in repr(fused) and "LlamaDecoderLayer" in repr(fused)
    with torch.no_grad():
        right = model(input_ids=words(), use_cache=False).logits
        near(fused(input_ids=words(), use_cache=False).logits, right, 1e-4)
        assert "1 graph" in repr(fused)
        seen = []
        handle = fused.register_forward_hook(lambda *_: seen.append(1))
        assert handle.id in model._forward_hooks
        handle.remove()
        for other in (pickle.loads(pickle.dumps(fused)), copy.deepcopy(fused)):
            assert type(other).__name__ == "LlamaForCausalLM" and "warplap.fuse" in repr(other)
            near(torch.nn.Module.__call__(other, input_ids=words(), use_cache=False).logits, right, 1e-4)
            assert other.lm_head.weight is not model.lm_head.weight
    kept = io.BytesIO()
    torch.save(fused.state_dict(), kept)
    kept.seek(0)
    model.load_state_dict(torch.load(kept))
    assert type(warplap.fuse(fused)) is type(fused)


def test_a_fused_model_generates_what_the_model_does(uncompiled, monkeypatch):
    monkeypatch.setattr(forms.Inductor, "later", lambda self, module, inputs: module.forward)
    model = llama()
    settings = dict(max_new_tokens=4, do_sample=False, pad_token_id=0)
    right = model.generate(words(1, 6), **settings)
    fused = warplap.fuse(model)
    assert torch.equal(fused.generate(words(1, 6), **settings), right)
    assert fused.decisions


class Counts(torch.nn.Module):
    """Writes to what it is given and to a buffer in the midst of its work."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, cache):
        y = F.relu(self.one(x))
        cache[:, :4] = y[:4]
        self.calls += 1
        return F.relu(self.two(y + cache[0, 0]))


def test_what_writes_cuts_a_graph_and_both_sides_are_raced(compiled):
    model, stock = Counts(), Counts()
    stock.load_state_dict(model.state_dict())
    fused = warplap.fuse(model)
    x, cache = torch.randn(8, 32), torch.randn(2, 8, 32)
    own = cache.clone()
    with torch.no_grad():
        for _ in range(3):
            near(fused(x, cache), stock(x, own), 1e-4)
            near(cache, own, 1e-4)
    assert model.calls.item() == 3  # the race counts on a copy
    (decision,) = fused.decisions
    assert decision.how == "raced", fused.explain()
    assert len(decision.plan.acts) == 2
    assert len(decision.plan.kinds["linear_relu"]) == 2


def test_a_cover_never_reaches_over_what_writes(uncompiled):
    def fn(x, w, seen):
        y = F.linear(x, w)
        seen.copy_(y)
        return F.relu(y) + seen

    fused = warplap.fuse(fn)
    x, w, seen = torch.randn(8, 32), torch.randn(32, 32), torch.zeros(8, 32)
    near(fused(x, w, seen), F.relu(F.linear(x, w)) + F.linear(x, w), 1e-4)
    (decision,) = fused.decisions
    assert "linear" in decision.plan.kinds and "linear_relu" not in decision.plan.kinds


def test_autocast_inside_of_a_graph_holds_where_it_held(uncompiled):
    one, two = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

    def fn(x):
        y = F.relu(one(x))
        with torch.autocast("cpu", torch.bfloat16):
            z = F.relu(two(y))
        return F.layer_norm(z.float() + y, (32,))

    fused = warplap.fuse(fn)
    x = torch.randn(8, 32)
    with torch.no_grad():
        near(fused(x), fn(x), 3e-2)
    assert fused.decisions[0].how == "raced", fused.explain()


def test_what_is_left_to_torch_says_why(uncompiled):
    def fn(x, w):
        y = torch.softmax(x, 0)
        return F.layer_norm(y.double(), (32,)), F.layer_norm(F.linear(x, w), (8, 32))

    fused = warplap.fuse(fn)
    fused(torch.randn(8, 32), torch.randn(32, 32))
    explanation = fused.explain()
    assert "softmax is left to torch: it goes along dimension 0, and ours along the last" in explanation
    assert "layer_norm is left to torch: it computes in float64" in explanation
    assert "layer_norm is left to torch: it spans 2 dimensions" in explanation


def test_a_model_of_many_layers_is_decided_by_one_of_them(uncompiled):
    model = llama(num_hidden_layers=6)
    fused = warplap.fuse(model)
    with torch.no_grad():
        near(fused(input_ids=words(), use_cache=False).logits, model(input_ids=words(), use_cache=False).logits, 1e-4)
    (decision,) = fused.decisions
    assert decision.how == "raced" and decision.layer.how == "raced", fused.explain()
    assert decision.layer.copies >= 5 and len(decision.layer.plan.nodes) < len(decision.plan.nodes) / 5
    assert len(decision.contestants) == 2, "the winner of a layer beside eager, or Inductor beside eager"
    assert "decided by one layer of" in fused.explain()
    again = warplap.fuse(model)
    torch._dynamo.reset()
    with torch.no_grad():
        again(input_ids=words(), use_cache=False)
    assert again.decisions[0].how == "from the store" and again.decisions[0].taken == decision.taken
    longer = warplap.fuse(llama(num_hidden_layers=8))
    with torch.no_grad():
        longer(input_ids=words(), use_cache=False)
    assert longer.decisions[0].layer.how == "from the store"
    assert longer.decisions[0].layer.taken == decision.layer.taken


def test_what_wins_in_a_layer_is_taken_in_all_of_them(uncompiled, monkeypatch):
    from warplap.fusing.race import choice, layers

    model, stock = llama(num_hidden_layers=5).train(), llama(num_hidden_layers=5).train()
    seen = []

    def chosen(plan, inductor, arguments):
        layer = layers.repeated(plan)
        covering = [p for p in layer.plan.partitions(None, 99) if len(p.kinds) > 2]
        seen.append((layer, covering[0], layer.partition(plan, covering[0], arguments, False)))
        return None, [seen[-1][2]], [seen[-1][2]]

    monkeypatch.setattr(choice, "_chosen", chosen)
    monkeypatch.setattr(choice, "_ahead", lambda forms, winner, result: next(f for f in forms if f.kinds))
    fused = warplap.fuse(model)
    for each in (fused, stock):
        each(input_ids=words(), labels=words(), use_cache=False).loss.backward()
    for mine, right in zip(model.parameters(), stock.parameters()):
        near(mine.grad, right.grad, 1e-3)
    ((layer, inner, whole),) = seen
    assert layer.copies >= 4 and len(whole.covers) >= layer.copies * len(inner.covers)
    assert fused.decisions[0].winner is whole


def masks_of(model, **inputs):
    """What attention of a model is told by, and whether the answer stays the same."""
    said = []

    def compiler(module, _):
        Plan(module)
        calls = [node for node in module.graph.nodes if word(node) == "attention"]
        said.extend((node.kwargs["attn_mask"] is None, node.kwargs["is_causal"]) for node in calls)
        return module.forward

    with torch.no_grad():
        near(torch.compile(model, backend=compiler)(**inputs).logits, model(**inputs).logits, 1e-5)
    return set(said)


def mistral(window, layers=2):
    config = transformers.MistralConfig(
        hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=97,
        num_hidden_layers=layers, sliding_window=window,
    )  # fmt: skip
    torch.manual_seed(3)
    return transformers.MistralForCausalLM(config).eval()


CAUSAL, NOTHING, MATRIX = (True, True), (True, False), (False, False)


@pytest.mark.parametrize(
    "make, inputs, expected",
    [
        (llama, {"use_cache": False}, CAUSAL),
        (llama, {"use_cache": True}, CAUSAL),
        (llama, {"use_cache": False, "attention_mask": torch.tensor([[0, 0] + 10 * [1], 12 * [1]])}, MATRIX),
        (llama, {"use_cache": False, "position_ids": torch.tensor([[*range(6), *range(6)]])}, MATRIX),
        (lambda: mistral(40), {"use_cache": False}, CAUSAL),
        (lambda: mistral(4), {"use_cache": False}, MATRIX),
        (lambda: mistral(1), {"use_cache": False}, MATRIX),
        (bert, {}, NOTHING),
    ],
    ids=["llama", "cache", "padding", "packed", "wide window", "narrow window", "own place alone", "bert"],
)  # fmt: skip
def test_masks_that_no_input_reaches_are_told_by_name(make, inputs, expected, compiled):
    assert masks_of(make(), input_ids=words(1 if "position_ids" in inputs else 2), **inputs) == {expected}


def test_a_mask_that_is_changed_in_place_stays(compiled):
    def attend(q, rows):
        mask = torch.ones(12, 12, dtype=torch.bool).tril()
        mask[:, :rows.shape[0]] = True
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    def compiler(module, _):
        Plan(module)
        assert all(node.kwargs["attn_mask"] is not None for node in module.graph.nodes if word(node) == "attention")
        return module.forward

    q = torch.randn(1, 2, 12, 16)
    near(torch.compile(attend, backend=compiler)(q, torch.ones(4)), attend(q, torch.ones(4)), 1e-5)


def test_a_window_that_no_input_reaches_is_told_to_our_attention(uncompiled):
    model, ids = mistral(4), words()
    fused = warplap.fuse(model)
    with torch.no_grad():
        near(fused(input_ids=ids, use_cache=False).logits, model(input_ids=ids, use_cache=False).logits, 1e-4)
    (decision,) = fused.decisions
    plan = decision.plan
    assert decision.how == "raced", fused.explain()
    (matches,) = (found for kind, found in plan.kinds.items() if kind.startswith("attention"))
    assert len(matches) == 2 and all(match.args[-1] == 3 and match.args[3] is None for match in matches)
    rewritten = plan.rewritten(matches)
    assert not [node for node in rewritten.graph.nodes if word(node) == "attention"]
    with torch.no_grad():
        near(rewritten(*inputs_of(model, ids))[0], model(input_ids=ids, use_cache=False).logits, 1e-4)


def inputs_of(model, ids):
    """What the traced graph of a model takes."""
    taken = []

    def compiler(module, _):
        return lambda *inputs: taken.append(inputs) or module.forward(*inputs)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=compiler)(input_ids=ids, use_cache=False)
    return taken[0]


def test_a_mask_of_a_programs_own_operator_stays(compiled):
    state = {"causal": True}

    @torch.library.custom_op("warplap_tests::mask_of_state", mutates_args=())
    def mask_of_state() -> torch.Tensor:
        full = torch.ones(12, 12, dtype=torch.bool)
        return full.tril() if state["causal"] else full

    mask_of_state.register_fake(lambda: torch.empty(12, 12, dtype=torch.bool))
    attend = lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ops.warplap_tests.mask_of_state())

    def compiler(module, _):
        Plan(module)
        return module.forward

    q, run = torch.randn(1, 2, 12, 16), torch.compile(attend, backend=compiler)
    near(run(q), attend(q), 1e-5)
    state["causal"] = False
    near(run(q), attend(q), 1e-5)


def test_levels_of_vmap_stay(compiled):
    def scaled(x):
        return torch.vmap(lambda row: row * 2 + 1)(x)

    def compiler(module, _):
        Plan(module)
        return module.forward

    x = torch.randn(4, 8)
    near(torch.compile(scaled, backend=compiler)(x), x * 2 + 1)
