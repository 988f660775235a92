"""Short sums of which neighbours in memory are in different rows, against eager in f64."""

from __future__ import annotations

import pytest
import torch
from bodies import Body
from programs import ADD
from test_lowered_graphs import check
from test_schedule import loops_of, schedule
from test_written_out import check_gradients

from shardc.backends.cpu.emit.row import vectors_of

FUNCTIONS = {
    "variance over days": (lambda x: x.var(0) + 1, (20, 203)),
    "softmax over classes": (lambda x: torch.softmax(x, 1) * 2, (3, 10, 9, 11)),
    "softmax over the first": (lambda x: torch.softmax(x, 0), (7, 130)),
    "norm over channels": (lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6), (2, 16, 5, 7)),
    "coils": (lambda x: x[:, :1, 0] * (x * x[:, :1]).mean(1), (2, 12, 8, 9)),
    "few adjacent classes": (lambda x: torch.softmax(x, -1) * 2, (203, 5)),
    "logarithm of sums of eight": (lambda x: torch.logsumexp(x * 2, -1), (7, 40, 8)),
    "many classes": (lambda x: torch.logsumexp(x, 1), (2, 32, 40)),
    "two sums": (lambda x: [(x * 2).amax(1), (x.exp()).sum(1)], (5, 6, 70)),
    "one column": (lambda x: x.mean(0), (9, 1)),
    "norm of sixteen": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), (203, 16)),
    "largest of nine": (lambda x: x.amax(-1) * x.sum(-1), (203, 9)),
    "softmax before a transposed copy": (lambda x: torch.softmax(x, 1).mT.contiguous() * 2, (3, 16, 40)),
}
DIFFERENTIABLE = [name for name in FUNCTIONS if name != "two sums"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str, threads: int) -> None:
    f, shape = FUNCTIONS[name]
    check(f, torch.randn(shape))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    f, shape = FUNCTIONS[name]
    check_gradients(f, torch.randn(shape))


def test_nan_and_positions_of_extremes(threads: int) -> None:
    x = torch.randn(6, 8, 90)
    x[1, 3, 5], x[2, :, 7] = torch.nan, 1.0
    check(lambda x: [(x * 1).argmax(1), (x + 0).amin(1)], x)


def test_more_elements_than_a_run_have_several(threads: int) -> None:
    check(lambda x: [x.sum(0), (x * x).amax(0)], torch.randn(4, 20_001))


def _centred(shape: tuple[int, int]) -> Body:
    body = Body("centred")
    x = body.argument(shape)
    total = body.reduce([x], ADD, [0], "0.0")
    body.results = [body.map([x, (total, "d1")], "%r = arith.subf %0, %1 : f32")]
    return body


def test_sums_are_written_out_inside_of_the_long_loop() -> None:
    (nest,), (stages,) = schedule(_centred((8, 500)))
    assert nest.lanes and [nest.sizes[a] for a in nest.written_out] == [8]
    assert not any(loop.kept for loop in stages.loops)
    assert loops_of(_centred((8, 500))).count("scf.for") == 2


def test_rows_of_several_dims_are_lanes() -> None:
    body = Body("coils")
    x, y = body.argument((4, 12, 8, 9)), body.argument((4, 8, 9))
    total = body.reduce([x], ADD, [1], "0.0")
    shown = body.map([total, (y, "d0, d1, d2")], "%r = arith.mulf %0, %1 : f32")
    body.results = [shown]
    (nest,), _ = schedule(body)
    assert nest.lanes and [nest.sizes[a] for a in nest.rows] == [4, 72]


@pytest.mark.parametrize(("size", "lanes"), [(8, True), (9, False)])
def test_few_adjacent_elements_are_lanes_of_as_many_vectors(size: int, lanes: bool) -> None:
    body = Body("adjacent")
    body.results = [body.reduce([body.argument((400, size))], ADD, [1], "0.0")]
    (nest,), _ = schedule(body)
    assert nest.lanes == lanes


@pytest.mark.parametrize("shape", [(17, 500), (40, 500)])
def test_longer_sums_stay_loops(shape: tuple[int, int]) -> None:
    nests, _ = schedule(_centred(shape))
    assert not any(nest.lanes for nest in nests)


def _shares(size: int, functions: int) -> Body:
    """Rows over a function of their sum."""
    body = Body("shares")
    x = body.argument((400, size))
    total = body.reduce([x], ADD, [1], "0.0")
    last, code = "%1", []
    for n in range(functions):
        code.append(f"%step{n} = math.tanh {last} : f32")
        last = f"%step{n}"
    body.results = [body.map([x, (total, "d0")], "\n".join([*code, f"%r = arith.mulf %0, {last} : f32"]))]
    return body


@pytest.mark.parametrize(("size", "functions", "in_vectors"), [(9, 1, True), (16, 1, True), (16, 8, False)])
def test_short_sums_stay_in_vectors_unless_much_is_computed_of_them(
    size: int, functions: int, in_vectors: bool
) -> None:
    assert ("#llvm.loop_unroll<disable = true>" in loops_of(_shares(size, functions))) == in_vectors


def test_long_sums_are_in_vectors_whatever_is_computed_of_them() -> None:
    assert "#llvm.loop_unroll<disable = true>" in loops_of(_shares(32, 8))


@pytest.mark.parametrize(("size", "marked"), [(3, False), (4, True), (15, True), (63, True), (64, False)])
def test_short_loops_are_not_unrolled_before_they_are_vectors(size: int, marked: bool) -> None:
    body = Body("groups")
    x, mean = body.argument((100, 12, size)), body.argument((100, 12))
    terms = body.map([x, (mean, "d0, d1")], "%r = arith.subf %0, %1 : f32")
    body.results = [body.reduce([terms], ADD, [0], "0.0")]
    assert ("#llvm.loop_unroll<disable = true>" in loops_of(body)) == marked


@pytest.mark.parametrize("size", [4, 9, 15, 16, 63])
def test_sums_over_rows_of_short_groups(size: int, threads: int) -> None:
    x, mean = torch.randn(70, 12, size), torch.randn(70, 12)
    check(lambda x, mean: [((x - mean[..., None]) * x).sum(0), x - mean[..., None]], x, mean)


@pytest.mark.parametrize(
    ("terms", "vectors"), [(9, 1), (40, 2), (80, 1), (96, 2), (112, 1), (128, 4), (144, 4), (400, 4)]
)
def test_few_whole_vectors_of_a_sum_remain(terms: int, vectors: int) -> None:
    assert vectors_of(terms, 4) == vectors


@pytest.mark.parametrize("size", [40, 80, 100, 112, 144, 333])
def test_sums_of_odd_lengths(size: int, threads: int) -> None:
    check(lambda x: [(x * x).sum(-1), x.amax(-1), x.exp().mean(-1)], torch.randn(33, size))
