"""Maxima and minima of many elements: NaN at any position, infinities, and the initial value."""

import pytest
import torch
from bodies import Body, compiled
from test_lowered_graphs import check

LARGEST, SMALLEST = "arith.maximumf", "arith.minimumf"
TYPES = {"f32": torch.float32, "f64": torch.float64}
IDENTITIES = {
    (LARGEST, "f32"): "0xFF800000",
    (SMALLEST, "f32"): "0x7F800000",
    (LARGEST, "f64"): "0xFFF0000000000000",
    (SMALLEST, "f64"): "0x7FF0000000000000",
}


def extreme(op: str, shape: tuple[int, ...], dims: list[int], element: str = "f32", start: str | None = None):
    body = Body("extreme")
    x = body.argument(shape, element)
    start = start or IDENTITIES[op, element]
    body.results = [body.reduce([x], f"%r = {op} %0, %acc : {element}", dims, start, element)]
    body.config = "work_per_thread = 500 : i64"
    return compiled(body)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dims", [[1], [0], [0, 1]], ids=str)
@pytest.mark.parametrize("op, element", IDENTITIES)
@pytest.mark.parametrize("columns", [1, 7, 1031])
def test_broken_values_as_eager(columns, op, element, dims, threads):
    x = torch.randn(37, columns, dtype=TYPES[element])
    run = extreme(op, (37, columns), dims, element)
    eager = torch.amax if op == LARGEST else torch.amin
    assert torch.equal(run(x)[0], eager(x, dims))
    x[1], x[2, columns // 2], x[3, -1] = -torch.inf, torch.inf, 1e30  # whose square is infinite in f32
    assert torch.equal(run(x)[0], eager(x, dims))
    x[4, 0], x[5, -1], x[6, columns // 3] = torch.nan, -torch.nan, torch.nan
    x[6, columns // 2], x[7] = -torch.inf, torch.nan
    torch.testing.assert_close(run(x)[0], eager(x, dims), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("start, wanted", [("3.0", 3.0), ("0x7FC00000", torch.nan)])
def test_what_it_starts_from_counts(start, wanted):
    got = extreme(LARGEST, (5, 300), [1], start=start)(torch.full((5, 300), -1.0))[0]
    torch.testing.assert_close(got, torch.full((5,), wanted), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("columns", [1, 31, 64, 1031])
def test_both_extremes_of_a_row(columns, threads):
    """Of masked terms, which depend on the index, too."""

    def both(x):
        inside = torch.ones_like(x).tril() > 0
        return x.amax(1), x.amin(1), x.masked_fill(~inside, -1e9).amax(1), x.masked_fill(inside, 1e9).amin(1)

    x = torch.randn(37, columns)
    check(both, x)
    x[1, columns // 2], x[2, -1], x[3, 0] = torch.nan, torch.nan, torch.nan
    check(both, x)
