"""``shardc.rule``: proved where it is written; refused, with the counterexample, where it is wrong."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

import shardc
from shardc.diagnostics.dialects.rules import BadRule, BadRuleText, UnsoundRule
from shardc.dialects.rules.proving.execution import call_of
from shardc.dialects.rules.rule import Local, Rule, find_rule, why_no_rule

torch.library.define("shardc_unit::cumulate", "(Tensor x, int dim, float scale=1.0) -> Tensor")
torch.library.define("shardc_unit::write", "(Tensor(a!) x) -> ()")
torch.library.define("shardc_unit::span", "(Tensor x, int rows) -> Tensor")


@torch.library.impl("shardc_unit::cumulate", "CompositeExplicitAutograd")
def cumulate(x: Tensor, dim: int, scale: float = 1.0) -> Tensor:
    return x.cumsum(dim) * scale


@torch.library.impl("shardc_unit::span", "CompositeExplicitAutograd")
def span(x: Tensor, rows: int) -> Tensor:
    assert x.shape[0] * 2 == rows, "rows must be twice those of x"
    return torch.cat([x, x]).view(2, *x.shape).transpose(0, 1).reshape(rows, *x.shape[1:])


X = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], dtype=torch.float64)
TRUE = "([i,j])->([i,j]) replicate={j} linear={0}"


def register(text: str | None, *samples: tuple[Any, ...], op: str = "shardc_unit::cumulate") -> None:
    @shardc.rule(op, samples=samples)
    def made(call: Any) -> str | None:
        return text


def rule_of(*args: Any) -> Rule | None:
    return find_rule(call_of("shardc_unit.cumulate", args)[0])


def test_a_sound_rule_is_used_at_any_size() -> None:
    register(TRUE, (X, 1))
    found = rule_of(torch.ones(6, 5), 1)
    assert str(found) == "([i,j])->([i,j]) replicate={j}" and found.linear == (frozenset({0}),)
    assert str(rule_of(torch.ones(6, 5), 1, 2.5)) == str(found)


@pytest.mark.parametrize(
    "args",
    [(X, 0), (X.long(), 1), (X, 1, 0.0), (X[0], 0)],
    ids=["another dim", "integers", "a factor of 0", "another rank"],
)
def test_a_call_unlike_every_sample_has_no_rule(args: tuple[Any, ...]) -> None:
    register("([...,j])->([...,j]) replicate={j}", (X, 1))
    call = call_of("shardc_unit.cumulate", args)[0]
    assert find_rule(call) is None
    assert why_no_rule(call) == "is called with arguments of which its rule has no sample"


def test_a_rule_written_anew_takes_the_place_of_the_old_one() -> None:
    register(TRUE, (X, 1))
    assert rule_of(X, 0) is None
    register("([i,j])->([i,j]) replicate={i}", (X, 0))
    assert rule_of(X, 0) is not None and rule_of(X, 1) is None


def test_the_function_sees_the_call() -> None:
    @shardc.rule("shardc_unit::cumulate", samples=[(X, 0), (X, 1)])
    def by_dim(call: Any) -> str:
        return f"([i,j])->([i,j]) replicate={{{'ij'[call['dim']]}}}"

    assert by_dim(call_of("shardc_unit.cumulate", (X, 0))[0]) == "([i,j])->([i,j]) replicate={i}"
    assert str(rule_of(X, 0)) == "([i,j])->([i,j]) replicate={i}"
    assert str(rule_of(X, 1)) == "([i,j])->([i,j]) replicate={j}"


def test_a_rule_object_may_build_the_local_call() -> None:
    def fewer_rows(local: Local) -> list[Any]:
        return [local.emit("shardc_unit.span", local.args[0], 2 * local.size("i"))]

    @shardc.rule("shardc_unit::span", samples=[(X, 4)])
    def rows(call: Any) -> Rule:
        (_, width), dims = call["x"].shape, (("i",), ("j",))
        sizes = {"i": call["x"].shape[0], "j": width, "k": 2}
        return Rule((dims,), ((("i", "k"), ("j",)),), sizes, replicate=frozenset("k"), lower=fewer_rows)

    with pytest.raises(UnsoundRule, match="the local call failed at i=0: rows must be twice those of x"):
        register("([i,j])->([(i k),j]) replicate={k}", (X, 4), op="shardc_unit::span")


def test_an_unsound_rule_is_refused_with_the_counterexample() -> None:
    line = inspect.currentframe().f_lineno + 3  # type: ignore[union-attr]
    with pytest.raises(UnsoundRule) as caught:

        @shardc.rule("shardc_unit::cumulate", samples=[(X, 1)])
        def wrong(call: Any) -> str:
            return "([i,j])->([i,j])"

    assert str(caught.value).splitlines() == [
        "UnsoundRule: the rule of shardc_unit.cumulate is wrong: "
        "result 0 is off by 0.423 of its largest magnitude, more than 1e-09",
        "  rule: ([i,j])->([i,j])",
        "  cut:  j into 2",
        "  sample: [2,4] float64 cut [{}, {j}]",
        "  found: result 0 at [0, 2]: expected 6, found 3",
        f"  at: {__file__}:{line}",
        f"  try: {UnsoundRule.hint}",
    ]


def test_a_refused_rule_leaves_the_old_one() -> None:
    register(TRUE, (X, 1))
    with pytest.raises(UnsoundRule):
        register("([i,j])->([i,j])", (X, 1))
    assert str(rule_of(X, 1)) == "([i,j])->([i,j]) replicate={j}"


REFUSED = {
    "no operator": (
        ("([i])->([i])", (X,)),
        "shardc_unit::nothing",
        BadRule,
        "no operator of that name is registered",
    ),
    "it writes": (("([i])->([i])", (X,)), "shardc_unit::write", BadRule, "it writes to its arguments"),
    "one of ours": (("([i])->([i])", (X,)), "aten::mm", BadRule, "shardc has a rule for it"),
    "no samples": ((TRUE,), "shardc_unit::cumulate", BadRule, "it has no samples on which to prove it"),
    "a sample that it declines": (
        (None, (X, 1)),
        "shardc_unit::cumulate",
        BadRule,
        "it has no samples on which to prove it",
    ),
    "a sample of one row": (
        (TRUE, (X[:1], 1)),
        "shardc_unit::cumulate",
        BadRule,
        "no sample shards its factor i",
    ),
    "no text": (
        ("rows", (X, 1)),
        "shardc_unit::cumulate",
        BadRuleText,
        r"expected '\(', but found 'rows'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_named_with_its_line(case: str) -> None:
    given, op, error, message = REFUSED[case]
    with pytest.raises(error, match=message) as caught:
        register(*given, op=op)
    assert f"at: {__file__}:" in str(caught.value) and "try:" in str(caught.value)
