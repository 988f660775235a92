"""The search for layouts that a rule does not offer finds parts that were removed from a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from completeness import Layout, not_offered
from not_offered import read_entries, unexplained

from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.rule import Rule, find_rule, replicated_rule

A, B = sample(4, 6), sample(6, 2)


def rule_of(target: str, args: tuple[Any, ...]) -> Rule:
    rule = find_rule(call_of(target, args)[0])
    assert rule is not None
    return rule


def found(target: str, args: tuple[Any, ...], rule: Rule) -> list[str]:
    return [str(layout) for layout in not_offered(target, args, rule)]


def test_a_full_rule_leaves_nothing_to_find() -> None:
    assert (
        found("aten.mm", (A, B), rule_of("aten.mm", (A, B)))
        == [
            # the one class that no rule has: see not_offered.md
        ]
    )


@pytest.mark.parametrize(
    ("factor", "layout"),
    [("a", "dim 0, whole -> dim 0"), ("b", "dim 1, dim 0 -> sum"), ("c", "whole, dim 1 -> dim 1")],
)
def test_a_factor_that_is_kept_whole_is_found(factor: str, layout: str) -> None:
    rule = rule_of("aten.mm", (A, B))
    assert found("aten.mm", (A, B), replace(rule, replicate=frozenset(factor))) == [layout]


def test_a_linear_set_that_is_left_out_is_found() -> None:
    rule = rule_of("aten.mm", (A, B))
    assert found("aten.mm", (A, B), replace(rule, linear=(frozenset({0}),))) == ["whole, sum -> sum"]


def test_extrema_of_operands_and_results_are_found() -> None:
    rule = rule_of("aten.amax", (A, (1,)))
    assert found("aten.amax", (A, (1,)), rule) == ["max -> max"]
    assert found("aten.amax", (A, (1,)), replace(rule, replicate=frozenset("b"))) == [
        "dim 1 -> max",
        "max -> max",
    ]


def test_shapes_in_arguments_are_made_local() -> None:
    args = (A, (2, 2, 6))
    whole = replicated_rule(call_of("aten.view", args)[0])
    layouts = found("aten.view", args, whole)
    assert "dim 0 -> dim 0" in layouts and "dim 1 -> dim 2" in layouts and "dim 0 -> dim 1" not in layouts


def test_what_is_not_valid_is_not_found() -> None:
    args = (A, 1)
    assert found("aten.cumsum", args, rule_of("aten.cumsum", args)) == []
    assert not any("sum" in text for text in found("aten.exp", (A,), rule_of("aten.exp", (A,))))


def test_a_layout_follows_from_another_by_slicing() -> None:
    offer = Layout(("dim 0", "whole"), ("dim 0",))
    assert offer.gives(Layout(("whole", "whole"), ("dim 0",)))
    assert not offer.gives(Layout(("dim 0", "sum"), ("dim 0",)))
    assert Layout(("whole",), ("whole",)).gives(Layout(("whole",), ("sum",)))
    assert not Layout(("whole",), ("sum",)).gives(Layout(("whole",), ("whole",)))


def test_only_rows_of_the_table_explain() -> None:
    (entry,) = read_entries(
        "a line\n| operator | layout | why |\n|---|---|---|\n| `aten.x*` | `sum, * -> sum` | So. |\n"
    )
    assert entry.explains("aten.xy", Layout(("sum", "dim 1"), ("sum",)))
    assert not entry.explains("aten.y", Layout(("sum", "dim 1"), ("sum",)))
    assert not entry.explains("aten.xy", Layout(("dim 1", "sum"), ("sum",)))
    assert unexplained("aten.mm", [Layout(("sum", "sum"), ("sum",))])


def test_integers_are_not_split() -> None:
    args = (sample(4, 6, dtype=torch.int64),)
    assert found("aten.neg", args, rule_of("aten.neg", args)) == []
