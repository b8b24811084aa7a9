"""Which operators of a layer run fused is raced beside Inductor, and explained."""

import torch
import torch.nn.functional as F
import warplap

warplap.configure(in_memory=True, budget=1.0)  # so that the example measures each time


class Feed(torch.nn.Module):
    """The second half of a transformer's block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + attended
        return x + self.down(F.gelu(self.up(self.norm(x))))


feed = Feed(128).eval()
fused = warplap.fuse(feed)  # or torch.compile(feed, backend="warplap")

x, attended = torch.randn(2, 64, 128).unbind()
with torch.no_grad():
    right, got = feed(x, attended), fused(x, attended)
assert torch.allclose(right, got, atol=1e-4)
print(fused.explain())
