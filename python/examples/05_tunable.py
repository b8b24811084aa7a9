"""Any callable with settings of its own: proved against a reference, raced, kept."""

import torch

import warplap


@warplap.tunable(
    space={"chunk": [8, 16, 64, 256], "wide": [False, True]},
    rules=["not wide or chunk <= 64"],
    reference=lambda x: torch.softmax(x, -1),
)
def softmax(x: torch.Tensor, chunk: int, wide: bool) -> torch.Tensor:
    parts = [torch.softmax(part.double() if wide else part, -1) for part in x.split(chunk)]
    return torch.cat(parts).to(x.dtype)


x = torch.randn(256, 64)
assert torch.allclose(softmax(x), torch.softmax(x, -1), atol=1e-5)
print(softmax.config(x))
