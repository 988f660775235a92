"""Symbolic sizes: arithmetic without numbers, and errors where numbers are needed."""

from __future__ import annotations

from math import prod

import pytest
from torch_mlir import ir

from shardc.dialects.kern.size import Size, SizeNotKnown, Symbol, hint, quotient, read_shape, shape_map
from shardc.passes.fuse.bodies.reshape import common_dims, groups

SYMBOLS = [Symbol(0, 3), Symbol(1, 5)]
A, B = map(Size.of, SYMBOLS)


def test_equal_sizes_are_equal() -> None:
    assert A * B * 2 == 2 * B * A == prod([B, 2, A])
    assert A + B + A == 2 * A + B
    assert A - A == 0 and A + 1 - A == 1
    assert A != 3 and A != B and 2 * A != A


def test_quotients_are_exact_or_none() -> None:
    assert quotient(6 * A * B, 2 * A) == 3 * B
    assert quotient(A, A) == 1
    assert quotient(A * B + 4 * A, A) == B + 4
    assert quotient(12, 4) == 3
    for a, b in ((A, 2), (A, B), (3 * A, 2), (12, A), (12, 5), (A, A + 1)):
        assert quotient(a, b) is None


def test_hints_are_numbers() -> None:
    assert hint(A * B * 2 + 1) == 31
    assert hint(7) == 7


@pytest.mark.parametrize(
    "ask", [int, float, bool, range, lambda n: n < 4, lambda n: n % 2, lambda n: n // 2, lambda n: max(n, 1)]
)
def test_the_number_is_refused(ask) -> None:
    with pytest.raises(SizeNotKnown, match="symbolic size s0"):
        ask(A)


@pytest.mark.parametrize(
    ("a", "b", "fine"),
    [
        ((A, B, 64), (A * B, 64), (A, B, 64)),
        ((A * B, 64), (A, B, 4, 16), (A, B, 4, 16)),
        ((A, 4, 16), (A * 2, 32), (A, 2, 2, 16)),
        ((A, 1, 8), (A * 8,), (A, 8)),
    ],
)
def test_dims_that_two_shapes_have_in_common(a, b, fine) -> None:
    found = common_dims(a, b)
    assert prod(found) == prod(fine)
    for shape in (a, b):
        assert [prod(found[d] for d in group) for group in groups(found, shape)] == list(shape)


@pytest.mark.parametrize(("a", "b"), [((A, 64), (64, A)), ((A, B), (B, A)), ((6, A), (4, A)), ((A,), (B,))])
def test_dims_that_no_symbol_tells_to_fit(a, b) -> None:
    with pytest.raises(SizeNotKnown, match="as many elements"):
        common_dims(a, b)


@pytest.mark.parametrize(("a", "b"), [((6,), (4,)), ((2, 3), (3, 3)), ((6, 4), (6,))])
def test_dims_that_do_not_fit(a, b) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        common_dims(a, b)


def test_shapes_as_affine_maps() -> None:
    shape = (A, A * B * 4, 64, B + 1)
    attribute = shape_map(shape, SYMBOLS, ir.Context())
    assert str(attribute) == "affine_map<()[s0, s1] -> (s0, (s0 * s1) * 4, 64, s1 + 1)>"
    assert read_shape(attribute, SYMBOLS) == shape
