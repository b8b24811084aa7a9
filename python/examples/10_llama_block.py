"""A block as Llama's models have it (RMSNorm, grouped attention with rotary embeddings, a gated layer), forward by
`warplap.fuse` and as a training step by name through torch.compile, both beside eager."""

import torch
import torch.nn.functional as F
import warplap

warplap.configure(in_memory=True, budget=0.3)  # so that the example measures each time; real programs give it seconds


class Rms(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.float()
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Heads turned by their positions."""
    one, other = x.chunk(2, -1)
    return x * cos + torch.cat((-other, one), -1) * sin


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int, shared: int, inner: int) -> None:
        super().__init__()
        size, plain = width // heads, lambda n, k: torch.nn.Linear(n, k, bias=False)
        self.heads, self.shared, self.first, self.second = heads, shared, Rms(width), Rms(width)
        self.q, self.k, self.v = plain(width, width), plain(width, shared * size), plain(width, shared * size)
        self.o, self.gate, self.up, self.down = (
            plain(width, width), plain(width, inner), plain(width, inner), plain(inner, width)
        )  # fmt: skip

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        h, (b, s, _) = self.first(x), x.shape
        split = lambda t, heads: t.view(b, s, heads, -1).transpose(1, 2)
        q, k = turned(split(self.q(h), self.heads), cos, sin), turned(split(self.k(h), self.shared), cos, sin)
        o = F.scaled_dot_product_attention(q, k, split(self.v(h), self.shared), is_causal=True, enable_gqa=True)
        x = x + self.o(o.transpose(1, 2).reshape(x.shape))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


block, x = Block(128, heads=4, shared=2, inner=256), torch.randn(2, 32, 128)
angles = torch.outer(torch.arange(32.0), 10000.0 ** (-torch.arange(0, 32, 2) / 32)).repeat(1, 2)
inputs = x, angles.cos(), angles.sin()

fused = warplap.fuse(block, freeze=True)  # weights stay as they are: norms may go into the products behind them
with torch.no_grad():
    assert torch.allclose(fused(*inputs), block(*inputs), atol=1e-4)
print(fused.explain())

step = torch.compile(block, backend="warplap")  # by name; a run is forward and backward here
gradients = lambda run: torch.autograd.grad(run(*inputs).square().mean(), list(block.parameters()))
for mine, right in zip(gradients(step), gradients(block)):
    assert torch.allclose(mine, right, atol=1e-4)
