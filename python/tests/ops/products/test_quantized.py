"""Products of 8-bit tensors: right for every kind of factors, clear about what they cannot take."""

import pytest
import torch

import warplap

E4M3 = torch.float8_e4m3fn


def codes(rows, columns, seed=0):
    drawn = torch.rand((rows, columns), generator=torch.Generator().manual_seed(seed))
    return (drawn * 2 - 1).to(E4M3)


def factors(*shape, seed=0):
    return 0.2 + 0.2 * torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def spread(scale, rows, columns):
    return scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :columns]


def right(a, b, scale_a, scale_b):
    return (a.double() * scale_a) @ (b.double() * scale_b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("m, k, n", [(1, 16, 16), (33, 300, 70), (64, 256, 128)])
def test_scaled_products_are_right_with_factors_of_tensors_rows_and_blocks(m, k, n, dtype):
    a, b = codes(m, k), codes(n, k, 1).t()
    blocks, columns = -(-k // 128), -(-n // 128)
    kinds = {
        "tensor": (factors(1)[0], factors(1, seed=1)[0], None),
        "row": (factors(m, 1), factors(1, n, seed=1), None),
    }
    of_a, of_b = factors(m, blocks), factors(blocks, columns, seed=1)
    wide = of_a.repeat_interleave(128, 1)[:, :k], spread(of_b, k, n)
    kinds["block"] = (of_a, of_b, wide)
    for kind, (scale_a, scale_b, full) in kinds.items():
        c = warplap.scaled_mm(a, b, scale_a, scale_b, out_dtype=dtype)
        assert c.dtype == dtype and c.shape == (m, n)
        expected = right(a, b, *(full or (scale_a, scale_b)))
        torch.testing.assert_close(c.double(), expected, rtol=0.02, atol=0.02, msg=lambda said: f"{kind}: {said}")


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (5, 33, 7), (40, 128, 96), (17, 64, 130)])
def test_integer_products_are_exact(m, k, n):
    generator = torch.Generator().manual_seed(3)
    a = torch.randint(-128, 128, (m, k), dtype=torch.int8, generator=generator)
    b = torch.randint(-128, 128, (k, n), dtype=torch.int8, generator=generator)
    expected = (a.long() @ b.long()).int()
    # Whichever way b lies.
    for b in (b, b.t().contiguous().t()):
        assert torch.equal(warplap.int_mm(a, b), expected)
        out = torch.full((m, n), 7, dtype=torch.int32)
        assert warplap.int_mm(a, b, out=out) is out and torch.equal(out, expected)


def test_an_output_that_is_given_is_written():
    a, b, one = codes(8, 32), codes(16, 32, 1).t(), torch.tensor(0.5)
    out = torch.empty(8, 16)
    assert warplap.scaled_mm(a, b, one, one, out_dtype=torch.float32, out=out) is out
    torch.testing.assert_close(out.double(), 0.25 * (a.double() @ b.double()), rtol=1e-3, atol=1e-3)


def test_torchs_own_products_race():
    def raced(dtype):
        rows = warplap.benchmark(f"qgemm:m=64,n=64,k=64,dtype={dtype}").rows
        return {row["variant"] for row in rows if row["time_us"] is not None}

    assert "torch_int_mm" in raced("i8") and "torch_scaled_mm" not in raced("i8")
    assert "torch_scaled_mm" in raced("f8e4m3") and "torch_int_mm" not in raced("f8e4m3")


def test_a_call_is_a_problem():
    a, b = codes(8, 256), codes(256, 256, 1).t()
    asked = warplap.explain(warplap.scaled_mm, a, b, factors(8, 2), factors(2, 2))
    assert "qgemm:m=8,n=256,k=256,dtype=f8e4m3,out=bf16,scale=block" in str(asked)


def test_what_cannot_be_multiplied_is_said_by_name():
    a, b, one = codes(8, 32), codes(16, 32, 1).t(), torch.tensor(0.5)
    for change, error, said in [
        (dict(a=a.float()), TypeError, "a: holds torch.float32"),
        (dict(b=b.to(torch.float8_e5m2)), TypeError, "b: holds torch.float8_e5m2"),
        (dict(b=codes(16, 31).t()), ValueError, r"b: has shape \[31, 16\], expected \[32, n\]"),
        (dict(a=a[0]), ValueError, "a: has 1 dimensions"),
        (dict(scale_a=torch.ones(3)), ValueError, r"scale_a, scale_b: have shapes \[3\]"),
        (dict(scale_b=one.double()), TypeError, "scale_b: expected a tensor of torch.float32"),
        (dict(out_dtype=torch.int32), TypeError, "out_dtype"),
        (dict(out=torch.empty(8, 16)), TypeError, "out: holds torch.float32"),
        (dict(out=torch.empty(8, 15, dtype=torch.bfloat16)), ValueError, "out: has shape"),
    ]:
        arguments = dict(a=a, b=b, scale_a=one, scale_b=one) | change
        with pytest.raises(error, match=said):
            warplap.scaled_mm(**arguments)
    with pytest.raises(TypeError, match="b: holds torch.float32, expected torch.int8"):
        warplap.int_mm(torch.zeros(2, 2, dtype=torch.int8), torch.zeros(2, 2))


def test_products_of_nothing_are_zeros_or_empty():
    empty = torch.empty(0, 16, dtype=torch.int8)
    assert warplap.int_mm(empty, torch.zeros(16, 4, dtype=torch.int8)).shape == (0, 4)
    none = warplap.int_mm(torch.empty(3, 0, dtype=torch.int8), torch.empty(0, 4, dtype=torch.int8))
    assert torch.equal(none, torch.zeros(3, 4, dtype=torch.int32))


def test_compiled_programs_hold_the_operators():
    a = torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    b = torch.randint(-128, 128, (16, 64), dtype=torch.int8).t()
    compiled = torch.compile(lambda a, b: warplap.int_mm(a, b) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(a, b), (a.long() @ b.long()).int() + 1)
