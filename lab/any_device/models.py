"""Whole models of transformers (random weights) as their users run them, beside torch's best.

    python lab/any_device/models.py [--device cpu|cuda] [--only llama,bert] [--budget S] [--rounds 9] [--train]
                                    [--sides LIST]

Needs torch, transformers and the package. On a CPU models are small ones. Sides: eager, compile, reduce
(``torch.compile`` with its mode ``reduce-overhead``), enable (``warplap.enable()``, eager), fuse (``warplap.fuse``),
fuse_reduce. All take turns in random order in one process; a ratio is the best of torch's medians over the best of
ours. Logits, or the loss with ``--train``, are held to the eager model's.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import time

import torch
import transformers as t
import warplap

_GQA = {"num_key_value_heads": 4}


def _sizes(hidden, inner, layers, heads, vocab, **more):
    return {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "vocab_size": vocab, **more,
    }  # fmt: skip


_SMALL = _sizes(256, 704, 2, 8, 1000)

# Name: config, model, real sizes, small sizes, batches and tokens on a GPU, and on a CPU.
MODELS = {
    "llama": (
        t.LlamaConfig, t.LlamaForCausalLM, _sizes(2048, 8192, 16, 32, 128256, num_key_value_heads=8), _SMALL | _GQA,
        [(1, 16), (1, 2048)], [(1, 16), (1, 256)],
    ),
    "qwen3": (
        t.Qwen3Config, t.Qwen3ForCausalLM, _sizes(1024, 3072, 28, 16, 151936, num_key_value_heads=8, head_dim=128),
        _SMALL | _GQA | {"head_dim": 32}, [(1, 16), (1, 2048)], [(1, 16), (1, 256)],
    ),
    "mistral": (
        t.MistralConfig, t.MistralForCausalLM, _sizes(4096, 14336, 8, 32, 32000, num_key_value_heads=8), _SMALL | _GQA,
        [(1, 16), (1, 2048)], [(1, 16), (1, 256)],
    ),
    "phi": (
        t.PhiConfig, t.PhiForCausalLM, _sizes(2048, 8192, 12, 32, 51200), _SMALL,
        [(1, 16), (1, 2048)], [(1, 16), (1, 256)],
    ),
    "gpt2": (
        t.GPT2Config, t.GPT2LMHeadModel, {}, {"n_embd": 256, "n_layer": 2, "n_head": 8, "vocab_size": 1000},
        [(1, 16), (8, 512)], [(1, 16), (2, 64)],
    ),
    "bert": (
        t.BertConfig, t.BertForMaskedLM, {}, _SMALL | {"intermediate_size": 1024}, [(16, 128)], [(2, 128)],
    ),
    "roberta": (
        t.RobertaConfig, t.RobertaForMaskedLM, {}, _SMALL | {"intermediate_size": 1024}, [(16, 128)], [(2, 128)],
    ),
    "vit": (
        t.ViTConfig, t.ViTForImageClassification, {},
        {"hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 768},
        [(32, 0)], [(2, 0)],
    ),
    "mixtral": (
        t.MixtralConfig, t.MixtralForCausalLM, _sizes(1024, 3584, 4, 16, 32000, num_key_value_heads=8),
        _SMALL | _GQA | {"num_local_experts": 4}, [(1, 16), (1, 2048)], [(1, 16)],
    ),
}  # fmt: skip
OURS = ("enable", "fuse", "fuse_reduce")


def model_of(name, device, dtype, train):
    config, model, real, small, *_ = MODELS[name]
    torch.manual_seed(0)
    sizes = small if device == "cpu" else real
    made = model(config(**sizes, **({} if name == "vit" else {"use_cache": False}))).to(device, dtype)
    return made.train() if train else made.eval()


def inputs_of(name, model, shape, device, dtype):
    batch, tokens = shape
    torch.manual_seed(1)
    if name == "vit":
        return {"pixel_values": torch.randn(batch, 3, 224, 224, device=device, dtype=dtype)}
    return {"input_ids": torch.randint(0, model.config.vocab_size, (batch, tokens), device=device)}


def side_of(side, model):
    """What is called, and what holds around its calls."""
    if side == "enable":
        return model, warplap.enable
    called = {
        "eager": lambda: model, "compile": lambda: torch.compile(model),
        "reduce": lambda: torch.compile(model, mode="reduce-overhead"), "fuse": lambda: warplap.fuse(model),
        "fuse_reduce": lambda: warplap.fuse(model, mode="reduce-overhead"),
    }[side]()  # fmt: skip
    return called, contextlib.nullcontext


def step_of(called, around, model, inputs, train):
    def infer():
        with torch.no_grad(), around():
            return called(**inputs).logits

    def learn():
        model.zero_grad(set_to_none=True)
        with around():
            loss = called(**inputs, labels=inputs["input_ids"]).loss
            loss.backward()
        return loss.detach()

    return learn if train else infer


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def case(name, shape, args):
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = model_of(name, args.device, dtype, args.train)
    inputs = inputs_of(name, model, shape, args.device, dtype)
    right = step_of(model, contextlib.nullcontext, model, inputs, args.train)().float().clone()
    steps, firsts, errors = {}, {}, {}
    for side in args.sides.split(","):
        torch._dynamo.reset()
        print(f"{name} {shape[0]}x{shape[1]}: {side} ...", file=sys.stderr, flush=True)
        started = time.perf_counter()
        try:
            step = step_of(*side_of(side, model), model, inputs, args.train)
            for _ in range(3):
                actual = step().float().clone()
            wait(args.device)
        except Exception as error:
            print(f"    {side} failed: {type(error).__name__}: {str(error)[:200]}")
            continue
        steps[side], firsts[side] = step, time.perf_counter() - started
        errors[side] = float((actual - right).norm() / right.norm())
    taken = {side: [] for side in steps}
    for _ in range(args.rounds):
        for side in random.sample(list(steps), len(steps)):
            steps[side]()
            wait(args.device)
            started = time.perf_counter()
            for _ in range(3):
                steps[side]()
            wait(args.device)
            taken[side].append((time.perf_counter() - started) / 3e-3)
    medians = {side: statistics.median(ms) for side, ms in taken.items()}
    best = lambda own: min(((ms, side) for side, ms in medians.items() if (side in OURS) == own), default=None)
    label = f"{name} {shape[0]}x{shape[1] or '224²'}{' step' if args.train else ''}"
    print(label, flush=True)
    for side, ms in medians.items():
        print(f"    {side:12s} {ms:9.3f} ms   first {firsts[side]:6.1f} s   differs by {errors[side]:.0e}", flush=True)
    if best(True) and best(False):
        (own, mine), (theirs, rival) = best(True), best(False)
        print(f"    {theirs / own:.3f}x  ({mine} beside {rival})", flush=True)
        return theirs / own
    return None


def main():
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if on_gpu else "cpu")
    parser.add_argument("--only", default=",".join(MODELS))
    sides = "eager,compile,reduce,enable,fuse,fuse_reduce" if on_gpu else "eager,compile,enable,fuse"
    parser.add_argument("--sides", default=sides)
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--train", action="store_true")
    args = parser.parse_args()
    warplap.configure(budget=args.budget)
    ratios = []
    for name in args.only.split(","):
        if not (args.train and name == "vit"):
            for shape in MODELS[name][4 if args.device == "cuda" else 5]:
                ratios.append(case(name, shape, args))
    ratios = [ratio for ratio in ratios if ratio is not None]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"{len(ratios)} models: worst {min(ratios):.2f}x, geometric mean {mean:.2f}x by the best of torch's")


if __name__ == "__main__":
    main()
