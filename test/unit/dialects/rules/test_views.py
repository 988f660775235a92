"""Views and moves: the factors that shapes give, and a proof of every operator of the family."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch

from shardc.dialects.rules.pointwise import Factors
from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import find_rule, load_rules
from shardc.dialects.rules.views import reshape_dims

X = sample(4, 6, 2)
LINEAR = [{0}]

# Source and target shape of a reshape, its rule, and what stays whole.
RESHAPES = [
    ((6, 4), (2, 3, 4), "([(a b),c])->([a,b,c])"),
    ((2, 4, 6), (8, 6), "([a,b,c])->([(a b),c])"),
    ((8, 6), (2, 4, 6), "([(a b),c])->([a,b,c])"),
    ((2, 4, 6), (48,), "([a,b,c])->([(a b c)])"),
    ((4, 6), (8, 3), "([a,(b c)])->([(a b),c])"),
    ((4, 6), (2, 12), "([(a b),c])->([a,(b c)])"),
    ((2, 12), (8, 3), "([a,(b c)])->([(a b),c])"),
    ((12, 2), (8, 3), "([(a b),e])->([(a c),d]) replicate={b,c,d,e}"),
    ((3, 2), (2, 3), "([a,d])->([b,c]) replicate={a,b,c,d}"),
    ((3, 2, 4), (2, 3, 4), "([a,d,e])->([b,c,e]) replicate={a,b,c,d}"),
    ((4, 1, 6), (4, 6), "([a,1,b])->([a,b])"),
    ((1, 4, 6), (4, 1, 6, 1), "([1,a,b])->([a,1,b,1])"),
    ((4, 6), (4, 6), "([a,b])->([a,b])"),
    ((1, 1), (1,), "([1,1])->([1])"),
    ((), (1, 1), "([])->([1,1])"),
    ((0, 4), (2, 0), "([a,b])->([c,d]) replicate={a,b,c,d}"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source,target,einsum", RESHAPES)
@pytest.mark.parametrize("name", ["aten.view", "aten._unsafe_view", "aten.reshape"])
def test_reshape_is_derived_from_shapes(
    name: str, source: tuple[int, ...], target: tuple[int, ...], einsum: str
) -> None:
    proof = prove(name, (sample(*source), target), ways=(2, 3, 4))
    assert str(proof.rule) == einsum
    assert list(proof.rule.linear) == LINEAR


def _shapes(numel: int, rank: int) -> list[tuple[int, ...]]:
    if rank == 1:
        return [(numel,)]
    divisors = [n for n in range(1, numel + 1) if numel % n == 0]
    return [(n, *rest) for n in divisors for rest in _shapes(numel // n, rank - 1)]


@pytest.mark.slow
def test_every_reshape_of_24_elements_up_to_rank_3() -> None:
    shapes = [s for rank in (1, 2, 3) for s in _shapes(24, rank)]
    assert len(shapes) == 1 + 8 + 30
    for source in shapes:
        for target in shapes:
            prove("aten.view", (sample(*source), target), pairs=False)


def test_sizes_that_are_inferred_come_from_the_result() -> None:
    assert str(prove("aten.view", (X, (-1, 2))).rule) == "([a,b,c])->([(a b),c])"


def test_factors_of_a_reshape_make_up_both_shapes() -> None:
    factors = Factors()
    source, target = reshape_dims(factors, (12, 10, 7), (8, 15, 7))
    for dims, shape in ((source, (12, 10, 7)), (target, (8, 15, 7))):
        assert tuple(prod(factors.sizes[f] for f in dim) for dim in dims) == shape
    assert source[0][0] == target[0][0] and factors.sizes[source[0][0]] == 4


CASES: list[tuple[str, tuple[Any, ...], str, list[set[int]]]] = [
    ("aten._reshape_alias", (X, (24, 2), (2, 1)), "([a,b,c])->([(a b),c])", LINEAR),
    ("aten.flatten.using_ints", (X, 1, 2), "([a,b,c])->([a,(b c)])", LINEAR),
    ("aten.unflatten.int", (X, 1, (2, -1)), "([a,(b c),d])->([a,b,c,d])", LINEAR),
    ("aten.expand", (sample(4, 1, 2), (3, -1, 6, 2)), "([b,1,d])->([a,b,c,d])", LINEAR),
    ("aten.expand", (sample(), (4,)), "([])->([a])", LINEAR),
    ("aten.repeat", (sample(4, 6), (2, 1)), "([b,c])->([(a b),c])", LINEAR),
    ("aten.repeat", (sample(4, 1), (2, 2, 4)), "([d,1])->([a,(b d),c])", LINEAR),
    ("aten.repeat_interleave.self_int", (X, 2, 1), "([a,b,c])->([a,(b d),c])", LINEAR),
    ("aten.permute", (X, (2, 0, 1)), "([a,b,c])->([c,a,b])", LINEAR),
    ("aten.permute", (X, (-1, 0, -2)), "([a,b,c])->([c,a,b])", LINEAR),
    ("aten.transpose.int", (X, 0, -1), "([a,b,c])->([c,b,a])", LINEAR),
    ("aten.transpose.int", (sample(), 0, -1), "([])->([])", LINEAR),
    ("aten.t", (sample(4, 6),), "([a,b])->([b,a])", LINEAR),
    ("aten.t", (sample(4),), "([a])->([a])", LINEAR),
    ("aten.unsqueeze", (X, -1), "([a,b,c])->([a,b,c,1])", LINEAR),
    ("aten.unsqueeze", (X, 0), "([a,b,c])->([1,a,b,c])", LINEAR),
    ("aten.squeeze", (sample(1, 4, 2, 1),), "([1,a,b,1])->([a,b])", LINEAR),
    ("aten.squeeze.dim", (sample(4, 1, 2), 1), "([a,1,b])->([a,b])", LINEAR),
    ("aten.squeeze.dim", (sample(4, 1, 2), -1), "([a,1,b])->([a,1,b])", LINEAR),
    ("aten.squeeze.dims", (sample(4, 1, 2), (1, 2)), "([a,1,b])->([a,b])", LINEAR),
    ("aten.select.int", (X, 1, -1), "([a,b,c])->([a,c]) replicate={b}", LINEAR),
    ("aten.select_backward", (sample(4, 2), (4, 6, 2), 1, 3), "([a,c])->([a,b,c]) replicate={b}", LINEAR),
    ("aten.select_scatter", (X, sample(4, 2), -2, 3), "([a,b,c],[a,c])->([a,b,c]) replicate={b}", [{0, 1}]),
    ("aten.unbind.int", (sample(4, 2), 1), "([a,b])->([a],[a]) replicate={b}", LINEAR),
    ("aten.split.Tensor", (X, 4, 1), "([a,b,c])->([a,d,c],[a,e,c]) replicate={b,d,e}", LINEAR),
    ("aten.split_with_sizes", (X, (1, 5), 1), "([a,b,c])->([a,1,c],[a,d,c]) replicate={b,d}", LINEAR),
    ("aten.unsafe_split.Tensor", (X, 2, 0), "([a,b,c])->([d,b,c],[e,b,c]) replicate={a,d,e}", LINEAR),
    (
        "aten.unsafe_split_with_sizes",
        (X, (2, 2), 0),
        "([a,b,c])->([d,b,c],[e,b,c]) replicate={a,d,e}",
        LINEAR,
    ),
    ("aten.cat", ((sample(4, 6), sample(4, 2)), -1), "([a,b],[a,c])->([a,d]) replicate={b,c,d}", [{0, 1}]),
    (
        "aten.cat",
        ((sample(0), sample(4, 2), sample(4, 2)), 0),
        "([a],[b,c],[d,c])->([e,c]) replicate={a,b,d,e}",
        [{0, 1, 2}],
    ),
    ("aten.cat", ((X,), 1), "([a,b,c])->([a,b,c])", LINEAR),
    ("aten.stack", ((sample(4, 6), sample(4, 6)), -1), "([a,b],[a,b])->([a,b,c]) replicate={c}", [{0, 1}]),
    ("aten.flip", (X, (1,)), "([a,b,c])->([a,b,c]) trade={b}", LINEAR),
    ("aten.flip", (X, (-1, 0)), "([a,b,c])->([a,b,c]) trade={a,c}", LINEAR),
    ("aten.flip", (X, ()), "([a,b,c])->([a,b,c])", LINEAR),
    ("aten.roll", (X, (1,), (-1,)), "([a,b,c])->([a,b,c]) trade={c}", LINEAR),
    ("aten.roll", (X, (-3, 5), (1, 0)), "([a,b,c])->([a,b,c]) trade={a,b}", LINEAR),
    ("aten.roll", (X, (6, 1, 1), (1, 0, 0)), "([a,b,c])->([a,b,c]) trade={a,b}", LINEAR),
    ("aten.roll", (sample(4, 6), (5,)), "([a,b])->([c,d]) replicate={a,b,c,d}", LINEAR),
    ("aten.diagonal", (X, 1, 0, 1), "([a,b,c])->([c,d]) replicate={a,b,d}", LINEAR),
    ("aten.diagonal_backward", (sample(2, 4), (4, 6, 2), 1, 0, 1), "", LINEAR),
    ("aten.diag_embed", (sample(4, 6), 1), "", LINEAR),
    ("aten.unfold", (X, 1, 3, 2), "([a,b,c])->([a,d,c,e]) replicate={b,d,e}", LINEAR),
    (
        "aten.unfold_backward",
        (sample(4, 2, 2, 3), (4, 6, 2), 1, 3, 2),
        "([a,d,c,e])->([a,b,c]) replicate={b,d,e}",
        LINEAR,
    ),
    (
        "aten.view_as_real",
        (sample(4, 6, dtype=torch.complex128),),
        "([a,b])->([a,b,c]) replicate={c}",
        LINEAR,
    ),
    ("aten.view_as_complex", (sample(4, 6, 2),), "([a,b,c])->([a,b]) replicate={c}", LINEAR),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target,args,einsum,linear", CASES)
def test_rule_is_proved(target: str, args: tuple[Any, ...], einsum: str, linear: list[set[int]]) -> None:
    proof = prove(target, args)
    assert not einsum or str(proof.rule) == einsum
    assert list(proof.rule.linear) == linear


def test_a_dim_of_one_element_on_each_rank_is_not_squeezed() -> None:
    for target, args in (("aten.squeeze", ()), ("aten.squeeze.dim", (1,)), ("aten.squeeze.dims", ((0, 1),))):
        assert {"a": 2} in prove(target, (sample(1, 2, 3), *args)).cuts


def test_integers_move_but_are_not_linear() -> None:
    args = (sample(4, 6, dtype=torch.int64), (24,))
    assert prove("aten.view", args).rule.linear == ()


def test_flattening_repeat_interleave_has_no_rule() -> None:
    assert find_rule(call_of("aten.repeat_interleave.self_int", (X, 2))[0]) is None


def test_every_operator_of_the_family_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".views")}
    assert registered == {c[0] for c in CASES} | {"aten.view", "aten._unsafe_view", "aten.reshape"}
