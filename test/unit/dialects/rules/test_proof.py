"""The prover: it accepts sound rules, and refuses each kind of false claim with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shardc.diagnostics.dialects.rules import NoRuleToProve, UnsoundRule
from shardc.dialects.dist.axis import Axis
from shardc.dialects.rules.proving import trial
from shardc.dialects.rules.proving.cuts import over_sub_axes
from shardc.dialects.rules.proving.execution import call_of, run_operator, sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import Local, Rule

X, J, K = ("i",), ("j",), ("k",)
MM = ((X, K), (K, J))
MM_SIZES = {"i": 4, "k": 6, "j": 2}
MM_ARGS = (sample(4, 6), sample(6, 2))
LEFT, RIGHT = frozenset({0}), frozenset({1})


def mm_rule(**changes: object) -> Rule:
    fields = {
        "operands": MM,
        "results": ((X, J),),
        "sizes": MM_SIZES,
        "reduce": {"k": "sum"},
        "linear": (LEFT, RIGHT),
    }
    return Rule(**{**fields, **changes})


def test_sound_rule_is_proved_on_every_factor_and_pair() -> None:
    proof = prove("aten.mm", MM_ARGS, rule=mm_rule())
    assert {tuple(sorted(c)) for c in proof.cuts} == {
        (),
        ("i",),
        ("j",),
        ("k",),
        ("i", "k"),
        ("i", "j"),
        ("j", "k"),
        ("i", "j", "k"),
    }
    assert proof.unreached == ()
    assert str(proof) == "aten.mm ([i,k],[k,j])->([i,j]) reduce={k}: 8 cuts, 2 linear sets"


def test_ways_and_the_smallest_prime_where_none_divides() -> None:
    cuts = prove(
        "aten.mm",
        (sample(4, 9), sample(9, 2)),
        rule=mm_rule(sizes={"i": 4, "k": 9, "j": 2}),
        ways=(2, 4),
        pairs=False,
    ).cuts
    assert list(cuts) == [{}, {"i": 2}, {"i": 4}, {"k": 3}, {"j": 2}]


def merge(lower: object = None, **changes: object) -> Rule:
    fields = {
        "operands": ((X, J, K),),
        "results": ((("i", "j"), K),),
        "sizes": {"i": 4, "j": 3, "k": 2},
        "lower": lower,
    }
    return Rule(**{**fields, **changes})


def local_view(local: Local) -> list[object]:
    return [local.emit("aten.view", local.args[0], local.results[0].shape)]


def test_minor_factor_is_cut_with_its_major_whole() -> None:
    proof = prove("aten.view", (sample(4, 3, 2), (12, 2)), rule=merge(local_view))
    assert {"j": 3, "i": 4} in proof.cuts
    assert all(cut.get("i") == 4 for cut in proof.cuts if "j" in cut)


def test_minor_of_a_factor_that_stays_whole_is_unreached() -> None:
    assert prove(
        "aten.view", (sample(4, 3, 2), (12, 2)), rule=merge(local_view, replicate=frozenset("i"))
    ).unreached == ("j",)


def test_factors_are_cut_over_sub_axes_in_any_order() -> None:
    halves = (Axis("j", 2, 2), Axis("j", 1, 2))
    rule = merge(operands=((X, J, K),), sizes={"i": 2, "j": 4, "k": 2})
    assert list(over_sub_axes(rule)) == [{"i": (Axis("i", 1, 2),), "j": halves}]
    proved = []

    def lower(local: Local) -> list[object]:
        proved.append((local.ways("j"), local.offset("j")))
        return local_view(local)

    prove("aten.view", (sample(2, 4, 2), (8, 2)), rule=merge(lower, sizes={"i": 2, "j": 4, "k": 2}))
    assert {(4, offset) for offset in range(4)} < set(proved)


def test_shardings_must_be_read_as_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_first(dims: object, sharding: object, sizes: object) -> dict[str, object]:
        read = factor_axes(dims, sharding, sizes)
        return dict(list(read.items())[:1])

    factor_axes = trial.factor_axes
    monkeypatch.setattr(trial, "factor_axes", only_the_first)
    with pytest.raises(UnsoundRule, match="not as the cut that made it"):
        prove("aten.mm", MM_ARGS, rule=mm_rule())


def test_linear_sets_hold_beside_every_cut() -> None:
    """A local call that is right on a cut of this sample's positive bias, and on terms of it where nothing is
    cut.
    """

    def lower(local: Local) -> list[object]:
        bias, left, right, *_ = local.args
        if local.ways("k") > 1:
            bias = bias.abs() / local.ways("k")
        return [local.emit("aten.addmm", bias, left, right)]

    rule = Rule(((X, J), *MM), ((X, J),), MM_SIZES, reduce={"k": "sum"}, lower=lower)
    args = (sample(4, 2).abs(), *MM_ARGS)
    prove("aten.addmm", args, rule=rule)
    with pytest.raises(UnsoundRule, match=r"linear set \{0, 1\} is off[\s\S]*cut:  k into 2"):
        prove("aten.addmm", args, rule=replace(rule, linear=(frozenset({0, 1}),)))


def test_the_counterexample_is_shown() -> None:
    """Shapes and shardings of the operands, and the first element that differs with both its values."""
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    rule = Rule(((X, J),), ((X, J),), {"i": 1, "j": 4})
    with pytest.raises(UnsoundRule) as caught:
        prove("aten.cumsum", (x, 1), rule=rule)
    lines = str(caught.value).splitlines()
    assert lines[1:] == [
        "  rule: ([i,j])->([i,j])",
        "  cut:  j into 2",
        "  sample: [1,4] float64 cut [{}, {j}]",
        "  found: result 0 at [0, 2]: expected 6, found 3",
        f"  try: {UnsoundRule.hint}",
    ]


def test_offsets_and_sizes_reach_lower() -> None:
    def lower(local: Local) -> list[object]:
        start = local.offset("i", scale=2, base=local.spec["start"])
        return [local.emit("aten.arange.start_step", start, start + 2 * local.size("i"), 2)]

    prove("aten.arange.start_step", (3, 15, 2), rule=Rule((), ((X,),), {"i": 6}, lower=lower), ways=(2, 3))


@pytest.mark.parametrize(
    "reduction,target", [("max", "aten.amax"), ("min", "aten.amin"), ("sum", "aten.sum.dim_IntList")]
)
def test_reductions_combine(reduction: str, target: str) -> None:
    prove(
        target, (sample(4, 2), (0,)), rule=Rule(((X, J),), ((J,),), {"i": 4, "j": 2}, reduce={"i": reduction})
    )


def test_result_independent_of_a_factor_may_lack_it() -> None:
    a, b = sample(4), sample(3)
    rule = Rule(((X,), (J,)), ((X,), (J,)), {"i": 4, "j": 3})
    prove("aten._foreach_neg", ((a, b),), rule=rule)


UNSOUND = {
    "a reduced factor is not declared": (
        mm_rule(reduce={}),
        "lacks k, which is not reduced, but ranks have different values",
    ),
    "the wrong reduction": (mm_rule(reduce={"k": "max"}), "result 0 is off by"),
    "not linear in both at once": (
        mm_rule(linear=(LEFT | RIGHT,)),
        r"result 0 of the linear set \{0, 1\} is off by",
    ),
    "an operand that does not exist": (
        mm_rule(linear=(frozenset({2}),)),
        "names no operands of the 2 there are",
    ),
    "sizes that differ from the shape": (
        mm_rule(sizes={"i": 2, "k": 6, "j": 2}),
        "dim 0 of operand 0 has 4 elements, its factors i make 2",
    ),
    "a factor without a size": (mm_rule(sizes={"i": 4, "k": 6}), "factor 'j' of operand 1 has no size"),
    "a rank that differs": (mm_rule(results=((X,),)), "result 0 has 1 dims in it, 2 in the call"),
    "a tensor too few": (mm_rule(operands=(MM[0],)), "it has 1 operands, the call 2"),
    "an unknown name": (
        mm_rule(replicate=frozenset("z")),
        "replicate names the factor 'z', which no tensor has",
    ),
    "an unknown reduction": (
        mm_rule(reduce={"k": "mean"}),
        "reduction 'mean' of factor 'k' is not one of sum, max, min",
    ),
    "a factor twice in a tensor": (
        mm_rule(results=((X, X),), sizes={"i": 4, "k": 6, "j": 2}),
        "factor 'i' appears twice in result 0",
    ),
    "a lower that fails": (
        mm_rule(lower=lambda local: [local.emit("aten.mm", local.args[0], local.args[0])]),
        "the local call failed at the only rank",
    ),
    "a lower with too few results": (
        mm_rule(lower=lambda local: []),
        "lower gives 0 results, the call has 1",
    ),
}


@pytest.mark.parametrize("name", sorted(UNSOUND))
def test_false_claims_are_refused(name: str) -> None:
    rule, message = UNSOUND[name]
    with pytest.raises(UnsoundRule, match=message) as caught:
        prove("aten.mm", MM_ARGS, rule=rule)
    assert "aten.mm" in str(caught.value)


def test_softmax_dim_must_not_be_cut() -> None:
    rule = Rule(((X, J),), ((X, J),), {"i": 4, "j": 2})
    with pytest.raises(UnsoundRule, match=r"off by [\s\S]*cut:  j into 2"):
        prove("aten._softmax", (sample(4, 2), 1, False), rule=rule)
    prove(
        "aten._softmax",
        (sample(4, 2), 1, False),
        rule=Rule(rule.operands, rule.results, rule.sizes, replicate=frozenset("j")),
    )


def test_wrong_local_shape_is_refused() -> None:
    with pytest.raises(UnsoundRule, match="the local call failed"):
        prove("aten.view", (sample(4, 3, 2), (12, 2)), rule=merge())


def test_affine_is_not_linear() -> None:
    rule = Rule(((X,),), ((X,),), {"i": 4}, linear=(LEFT,))
    with pytest.raises(UnsoundRule, match="linear set"):
        prove("aten.add.Scalar", (sample(4), 1.0), rule=rule)


def test_integers_are_not_linear() -> None:
    rule = Rule(((X,),), ((X,),), {"i": 4}, linear=(LEFT,))
    with pytest.raises(UnsoundRule, match="integer operands or results"):
        prove("aten.neg", (sample(4, dtype=torch.int64),), rule=rule)


def test_values_that_are_arbitrary() -> None:
    def lower(local: Local) -> list[object]:
        return [local.emit("aten.empty.memory_format", local.results[0].shape)]

    prove("aten.empty.memory_format", ((4,),), rule=Rule((), ((X,),), {"i": 4}, lower=lower), values=False)


def test_call_without_a_rule() -> None:
    with pytest.raises(NoRuleToProve, match=r"aten\.nonzero has no sharding rule"):
        prove("aten.nonzero", (sample(4),))


def test_arguments_are_completed_and_portable() -> None:
    call, full, whole = call_of("aten.zeros", ([2, 3], torch.float32, 0, torch.device("cpu")))
    assert call["size"] == (2, 3) and call["pin_memory"] is None and len(full) == len(call.args)
    assert torch.equal(run_operator("aten.zeros", call.args), whole[0])
