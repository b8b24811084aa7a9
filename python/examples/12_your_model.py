"""A model of transformers as it is: its functions replaced, then its graph fused; the same logits either way."""

import torch
import transformers

import warplap

warplap.configure(budget=0.5)  # seconds for each race; usual are 4, and 20 on a GPU
torch.manual_seed(0)
config = transformers.LlamaConfig(
    hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=500,
)  # fmt: skip
model = transformers.LlamaForCausalLM(config).eval()
ids = torch.arange(16)[None]

with torch.no_grad():
    right = model(ids).logits

    # No edit and no compiler: torch's functions go where the store says, until the block ends.
    with warplap.enable() as what:
        print(what)
        replaced = model(ids).logits

    # The whole graph, raced beside eager torch and Inductor. It is still the model: generate, state_dict, config.
    fast = warplap.fuse(model)
    fused = fast(ids).logits
    print(str(fast).splitlines()[-1])
    print(fast.generate(ids, max_new_tokens=2, do_sample=False).shape)

for name, logits in (("enable", replaced), ("fuse", fused)):
    print(f"{name}: the logits differ by {float((logits - right).abs().max()):.1e}")
    torch.testing.assert_close(logits, right, rtol=1e-3, atol=1e-3)
