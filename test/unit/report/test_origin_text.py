"""Origins of shardings are told in words that a plan's author knows."""

from __future__ import annotations

import pytest

from shardc.report.origin_text import origin_text

MOMENT = "follows 0.weight (zero3, tensor), through mm, t and lerp at optimizer:AdamW:0"


@pytest.mark.parametrize(
    ("why", "name", "told"),
    [
        ("nothing shards it", "0.bias", "whole on each device: neither the plan nor an op shards it"),
        ("zero3, tensor", "0.weight", "plan: zero3 and tensor"),
        ("pattern up.*", "up.0", "plan: pattern up.*"),
        ("annotated", "w", "annotated in the program"),
        ("searched", "w", "plan: found by the search"),
        ("", "w", "plan"),
        (
            "follows 0.weight (tensor), through relu at /v/site-packages/a/b.py:3",
            "2.weight",
            "follows 0.weight (plan: tensor), through relu at a/b.py:3",
        ),
        ("follows input x (data)", "2.weight", "follows input x (plan: data)"),
        ("follows a constraint (/v/site-packages/a/b.py:3)", "w", "follows a constraint (a/b.py:3)"),
        (
            MOMENT,
            "0.weight/exp_avg",
            "follows its parameter (plan: zero3 and tensor), through mm, t and lerp in the optimizer (AdamW)",
        ),
        (
            f"zero3; tensor {MOMENT}",
            "0.weight/exp_avg",
            "plan: zero3; tensor follows its parameter (plan: zero3 and tensor), "
            "through mm, t and lerp in the optimizer (AdamW)",
        ),
    ],
)
def test_words(why: str, name: str, told: str) -> None:
    assert origin_text(why, name, "[4, 4]") == told


def test_in_short_and_of_a_scalar() -> None:
    assert origin_text(MOMENT, "0.weight/exp_avg", "[4, 4]", through=False) == (
        "follows its parameter (plan: zero3 and tensor)"
    )
    assert origin_text("nothing shards it", "0.weight/step", "[]") == "whole on each device: a scalar"
