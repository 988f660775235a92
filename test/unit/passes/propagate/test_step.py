"""Propagation through one call, on einsum-like rules alone."""

from __future__ import annotations

import pytest

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.sharding import Sharding
from shardc.dialects.rules.rule import Rule
from shardc.passes.propagate.step import propagate_through

X, Y = Axis("x", 1, 2), Axis("y", 1, 2)
MAJOR, MINOR = Axis("z", 1, 2), Axis("z", 2, 2)
MATMUL = Rule(
    ((("i",), ("k",)), (("k",), ("j",))), ((("i",), ("j",)),), {"i": 8, "k": 8, "j": 8}, {"k": "sum"}
)
ADD = Rule(((("i",), ("j",)),) * 2, ((("i",), ("j",)),), {"i": 8, "j": 8})
FLATTEN = Rule(((("i",), ("j",)),), ((("i", "j"),),), {"i": 4, "j": 8})


def _open(*dims: tuple[Axis, ...]) -> Sharding:
    return Sharding(dims, (), (True,) * len(dims))


def _closed(*dims: tuple[Axis, ...]) -> Sharding:
    return Sharding(dims)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        pytest.param(
            MATMUL,
            (_open((X,), ()), _open((), (Y,)), _open((), ())),
            (_open((X,), ()), _open((), (Y,)), _open((X,), (Y,))),
            id="forward",
        ),
        pytest.param(
            MATMUL,
            (_open((), ()), _open((), ()), _open((X,), (Y,))),
            (_open((X,), ()), _open((), (Y,)), _open((X,), (Y,))),
            id="backward",
        ),
        pytest.param(
            MATMUL,
            (_open((), (X,)), _open((), ()), _open((), ())),
            (_open((), (X,)), _open((X,), ()), _open((), ())),
            id="contracted dim, between operands",
        ),
        pytest.param(
            MATMUL,
            (_open((X,), ()), _open((X,), ()), _open((), ())),
            (_open((X,), ()), _open((X,), ()), _open((X,), ())),
            id="an axis that a tensor uses elsewhere is not taken",
        ),
        pytest.param(
            ADD,
            (_open((X,), ()), _closed((), ()), _open((), ())),
            (_open((X,), ()), _closed((), ()), _open((X,), ())),
            id="closed",
        ),
        pytest.param(
            ADD,
            (_open((X,), ()), Sharding(((), ()), (), (False, True)), _open((), (Y,))),
            (_open((X,), (Y,)), Sharding(((), (Y,)), (), (False, True)), _open((X,), (Y,))),
            id="closed in one dim",
        ),
        pytest.param(
            ADD,
            (_open((X, Y), ()), _open((X,), ()), _open((), ())),
            (_open((X, Y), ()), _open((X, Y), ()), _open((X, Y), ())),
            id="the longest list that nobody contradicts",
        ),
        pytest.param(
            ADD,
            (_closed((X, Y), ()), _closed((X, MAJOR), ()), _open((), ())),
            (_closed((X, Y), ()), _closed((X, MAJOR), ()), _open((X,), ())),
            id="what contradicting lists begin with",
        ),
        pytest.param(
            ADD,
            (_closed((X,), ()), _closed((Y,), ()), _open((), ())),
            (_closed((X,), ()), _closed((Y,), ()), _open((), ())),
            id="nothing in common",
        ),
        pytest.param(
            ADD,
            (_open((), (X,)), _open((X,), ()), _open((), ())),
            (_open((), (X,)), _open((X,), ()), _open((X,), ())),
            id="one axis for two dims: the first dim has it",
        ),
        pytest.param(
            ADD,
            (_open((MAJOR,), ()), _open((), (MINOR,)), _open((), ())),
            (_open((MAJOR,), (MINOR,)), _open((MAJOR,), (MINOR,)), _open((MAJOR,), (MINOR,))),
            id="parts of an axis are axes",
        ),
        pytest.param(
            ADD,
            (_open((MAJOR,), ()), _open((), (Axis("z", 1, 4),)), _open((), ())),
            (_open((MAJOR,), ()), _open((), (Axis("z", 1, 4),)), _open((MAJOR,), ())),
            id="an axis that overlaps one in use is not taken",
        ),
        pytest.param(
            FLATTEN, (_open((X,), ()), _open(())), (_open((X,), ()), _open((X,))), id="flattened, major dim"
        ),
        pytest.param(
            FLATTEN,
            (_open((), (X,)), _open(())),
            (_open((), (X,)), _open(())),
            id="flattened, a minor dim can't be said",
        ),
        pytest.param(
            FLATTEN,
            (_open((X, Y), (MAJOR,)), _open(())),
            (_open((X, Y), (MAJOR,)), _open((X, Y, MAJOR))),
            id="flattened, a minor dim behind a major one that is cut into single rows",
        ),
        pytest.param(
            FLATTEN,
            (_open((), ()), _open((X, Y, MAJOR))),
            (_open((X, Y), (MAJOR,)), _open((X, Y, MAJOR))),
            id="unflattened",
        ),
        pytest.param(ADD, (_open((), ()),) * 3, (_open((), ()),) * 3, id="nothing said"),
    ],
)
def test_one_exchange(rule: Rule, before: tuple[Sharding, ...], after: tuple[Sharding, ...]) -> None:
    assert propagate_through(rule, before) == after
    assert propagate_through(rule, after) == after, "a second exchange adds nothing"


def test_a_factor_that_must_stay_whole_carries_nothing() -> None:
    softmax = Rule(((("i",), ("j",)),), ((("i",), ("j",)),), {"i": 8, "j": 8}, replicate=frozenset({"j"}))
    before = (_open((X,), (Y,)), _open((), ()))
    assert propagate_through(softmax, before) == (before[0], _open((X,), ()))


def test_partial_sums_are_not_spread() -> None:
    before = (_open((), ()).with_partial((("sum", X),)), _open((), ()), _open((), ()))
    assert propagate_through(ADD, before) == before
