"""Losses without logits beside torch's of a projection: time of a step, peak of memory, time of values alone."""

import statistics
import time

import torch
import torch.nn.functional as F
import warplap

from fused_parts.tensors import head, line, make, off, poison, weight

# A part of the rows at a time, so that the right answer fits.
PART = 512


def seconds(step, count=4):
    step(), step()
    taken = []
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - begun) / count)
    return statistics.median(taken)


def peak(step):
    """GiB above what was there."""
    step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def right_of(x, w, labels):
    """The loss and both gradients in double precision."""
    wide, total, of_x = w.detach().double().requires_grad_(), 0.0, []
    of_w = torch.zeros_like(wide)
    for part, there in zip(x.detach().split(PART), labels.split(PART)):
        part = part.double().requires_grad_()
        value = F.cross_entropy(part @ wide.t(), there, reduction="sum")
        down, of_part = torch.autograd.grad(value, (part, wide))
        total += value.item()
        of_w += of_part
        of_x.append(down)
    count = (labels != -100).sum().item()
    return total / count, torch.cat(of_x) / count, of_w / count


def lanes_of(x, w, labels):
    ours = lambda chunk=None: lambda: warplap.linear_cross_entropy(x, w, labels, chunk=chunk)
    narrow = lambda: F.cross_entropy(F.linear(x, w), labels)
    floats = lambda: F.cross_entropy(F.linear(x, w).float(), labels)
    torch._dynamo.reset()
    by_inductor = lambda fn: torch.compile(fn, dynamic=False)
    rows = x.shape[0]
    return {
        "warplap": ours(),
        **{f"warplap, chunks of {c}": ours(c) for c in (512, 2048, rows) if c <= rows},
        "warplap, compiled": by_inductor(ours()),
        "F.cross_entropy(F.linear)": narrow,
        "the same of .float()": floats,
        "compiled": by_inductor(narrow),
        "compiled of .float()": by_inductor(floats),
    }


def loss(args):
    rows, k, n = (512, 1024, 16032) if args.quick else (4096, 4096, 128256)
    x, w = make(rows, k).requires_grad_(), weight(n, k).requires_grad_()
    labels = torch.randint(0, n, (rows,), device="cuda")
    labels[::17] = -100
    right = right_of(x, w, labels)
    head(f"loss, {rows} rows, {k}→{n}", "step ms", "peak GiB", "values alone ms", "off: loss, x, w")
    for name, call in lanes_of(x, w, labels).items():
        poison((n, k))
        try:
            value = call()
            # A third of the gradient, so that what multiplies with it is held to it too.
            dx, dw = torch.autograd.grad(value, (x, w), torch.full_like(value, 1 / 3))
            errors = abs(value.item() - right[0]) / right[0], off(dx * 3.0, right[1]), off(dw * 3.0, right[2])
            if name.startswith("warplap"):
                assert errors[0] < 1e-3 and max(errors[1:]) < 1e-2, f"{name}: off by {errors}"
            del value, dx, dw
            step = lambda: torch.autograd.grad(call(), (x, w))
            took, most = seconds(step), peak(step)
            with torch.no_grad():
                alone = seconds(call)
        except (RuntimeError, torch.OutOfMemoryError) as why:
            line(name, "refused", str(why)[:100], "", "")
            continue
        error_text = ", ".join(f"{error:.0e}" for error in errors)
        line(name, f"{took * 1e3:.2f}", f"{most:.2f}", f"{alone * 1e3:.2f}", error_text)
