"""A training step of a block as BERT's models have it (dropout, LayerNorm, GELU): by `warplap.fuse` beside eager, and
with dropout by name through torch.compile."""

import torch
import torch.nn.functional as F
import warplap

warplap.configure(in_memory=True, budget=0.3)  # so that the example measures each time; real programs give it seconds


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, torch.nn.Dropout(dropout)
        self.qkv, self.o = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.first(x + self.drop(self.o(o)))
        return self.second(x + self.drop(self.down(F.gelu(self.up(x)))))


block, x = Block(128, heads=4, inner=512, dropout=0.1), torch.randn(2, 32, 128)
gradients = lambda run: torch.autograd.grad(run(x).square().mean() + run(x)[0, 0].sum(), list(block.parameters()))

block.eval()  # nothing is dropped: every number can be compared
fused = warplap.fuse(block)
for mine, right in zip(gradients(fused), gradients(block)):
    assert torch.allclose(mine, right, atol=1e-4)
print(fused.explain())

block.train()  # what is dropped is drawn anew at each step, so that two of them differ
step = torch.compile(block, backend="warplap")  # by name; a run is forward and backward here
one, other = step(x), step(x)
one.sum().backward()
assert torch.isfinite(one).all() and not torch.equal(one, other)
print(warplap.graphs()[-1])
