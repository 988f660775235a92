"""The decision between what a call's tensors want."""

from __future__ import annotations

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.sharding import Axes, Sharding
from shardc.dialects.rules.rule import Rule, assignment_of
from shardc.passes.partition.assign import Request, assign, passing, without

X, Y = Axis("x", 1, 2), Axis("y", 1, 2)
MATMUL = Rule(
    ((("i",), ("k",)), (("k",), ("j",))),
    ((("i",), ("j",)),),
    {"i": 8, "k": 8, "j": 8},
    {"k": "sum"},
    linear=(frozenset({0}), frozenset({1})),
)
ADD = Rule(((("i",),),) * 2, ((("i",),),), {"i": 8}, linear=(frozenset({0, 1}),))
SOFTMAX = Rule(((("i",), ("j",)),), ((("i",), ("j",)),), {"i": 8, "j": 8}, replicate=frozenset({"j"}))


def _wish(*dims: Axes, size_bytes: int = 100, **rounds: int) -> Request:
    return Request(Sharding(dims), tuple(rounds.items()), size_bytes)


def _terms(*axes: Axis, dims: tuple[Axes, ...] = ((),)) -> Sharding:
    return Sharding(dims).with_partial(tuple(("sum", a) for a in axes))


def test_wishes_that_agree() -> None:
    requests = [_wish((X,), ()), _wish((), (Y,)), _wish((X,), (Y,))]
    assert assign(MATMUL, requests) == {"i": (X,), "j": (Y,)}


def test_the_earlier_round_wins_whatever_the_size() -> None:
    requests = [_wish((X,), ()), _wish((X,), (), size_bytes=10_000, x=1), _wish((), ())]
    assert assign(MATMUL, requests) == {"i": (X,)}


def test_a_claim_counts_from_the_earliest_round_that_made_it() -> None:
    requests = [_wish((X,), ()), _wish((X,), (), size_bytes=10_000, x=1), _wish((X,), (), x=1)]
    assert assign(MATMUL, requests) == {"i": (X,)}


def test_the_heavier_side_wins_within_a_round() -> None:
    requests = [_wish((X,), ()), _wish((X,), (), size_bytes=10_000), _wish((), ())]
    assert assign(MATMUL, requests) == {"k": (X,)}


def test_sizes_of_those_who_agree_add_up() -> None:
    light = _wish((X,), (), size_bytes=60)
    requests = [light, _wish((X,), (), size_bytes=100), Request(light.sharding, (), 60)]
    assert assign(MATMUL, requests) == {"i": (X,)}


def test_the_first_wins_among_equals() -> None:
    requests = [_wish((X,), ()), _wish((), (X,)), _wish((), ())]
    assert assign(MATMUL, requests) == {"i": (X,)}


def test_a_longer_list_is_taken_as_far_as_it_is_free() -> None:
    requests = [_wish((X, Y)), _wish((X,)), _wish(())]
    assert assign(ADD, requests) == {"i": (X, Y)}


def test_factors_that_must_stay_whole_are_never_cut() -> None:
    assert assign(SOFTMAX, [_wish((X,), (Y,)), _wish((X,), (Y,))]) == {"i": (X,)}


def test_a_minor_factor_needs_the_major_one_cut_into_single_rows() -> None:
    flatten = Rule(((("i",), ("j",)),), ((("i", "j"),),), {"i": 2, "j": 8})
    assert assign(flatten, [_wish((), (Y,)), _wish(())]) == {}
    assert assign(flatten, [_wish((X,), (Y,)), _wish(())]) == {"i": (X,), "j": (Y,)}


def test_reading_an_assignment_back() -> None:
    shardings = [Sharding(((X,), ())), Sharding(((), (Y,))), Sharding(((X,), (Y,)))]
    assert assignment_of(MATMUL, shardings) == {"i": (X,), "j": (Y,)}


def test_terms_pass_where_all_of_a_linear_set_has_them() -> None:
    assert passing(ADD, [_terms(X), _terms(X)]) == (frozenset({0, 1}), (X,))
    assert passing(ADD, [_terms(X, Y), _terms(Y)]) == (frozenset({0, 1}), (Y,))
    assert passing(ADD, [_terms(X), Sharding(((),))]) == (frozenset(), ())


def test_terms_do_not_pass_over_an_axis_that_cuts_another_operand() -> None:
    left = _terms(X, dims=((), ()))
    assert passing(MATMUL, [left, Sharding(((), (Y,)))]) == (frozenset({0}), (X,))
    assert passing(MATMUL, [left, Sharding(((), (X,)))]) == (frozenset(), ())


def test_only_sums_pass() -> None:
    largest = Sharding(((),)).with_partial((("max", X),))
    assert passing(ADD, [largest, largest]) == (frozenset(), ())


def test_leaving_axes_free() -> None:
    """What is cut further inside of a freed axis goes too: blocks of blocks that are not cut do not exist."""
    assert without({"i": (X, Y), "j": (Axis("z", 1, 2),)}, (X,)) == {"j": (Axis("z", 1, 2),)}
    assert without({"i": (X, Y)}, (Y,)) == {"i": (X,)}
    assert without({"i": (X,)}, ()) == {"i": (X,)}
