"""Schedules by name: supported numbers of stages and micro-batches, and errors for others."""

from __future__ import annotations

import pytest

from shardc.diagnostics.passes.pipeline import (
    BadMicroBatches,
    BadScheduleOption,
    BadStages,
    NoScheduleFits,
    UnknownSchedule,
    UnknownScheduleOption,
)
from shardc.options.schedules import ALIASES
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL
from shardc.passes.pipeline.schedules.registry import SCHEDULES


def test_names_that_are_not_there() -> None:
    with pytest.raises(UnknownSchedule, match="no schedule 'zbv'; the nearest is 'zb-v'"):
        by_name("zbv", 4, 8)
    with pytest.raises(UnknownSchedule, match=r"use one of fill-drain, 1f1b, .*, auto"):
        by_name("something else", 4, 8)
    for alias, name in ALIASES.items():
        assert by_name(alias, 4, 8) == by_name(name, 4, 8)
    assert by_name("ZB_V", 4, 8) == by_name("zb-v", 4, 8)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_said_of_micro_batches_is_true(name: str) -> None:
    """What it says it can be made of runs; the nearest of what it refuses is taken."""
    named = SCHEDULES[name]
    for micro_batches in range(-1, 18):
        nearest = named.nearest(4, micro_batches)
        if nearest == micro_batches:
            check_schedule(named.make_for(4, micro_batches, named.fewest, None))
            continue
        with pytest.raises(
            BadMicroBatches,
            match=f"{name} on 4 ranks needs .*, not {micro_batches}\n.*use {nearest}, the nearest",
        ):
            by_name(name, 4 * named.fewest, micro_batches, ranks=4)
        check_schedule(by_name(name, 4 * named.fewest, nearest, ranks=4))


@pytest.mark.parametrize(
    ("name", "stages", "ranks", "said"),
    [
        (
            "zb-v",
            6,
            2,
            "cannot put 6 stages on 2 ranks: it takes two stages a rank\n.*cut the model into 4 stages for "
            "2 ranks",
        ),
        ("1f1b", 8, 4, "it takes one stage a rank\n.*cut the model into 4 stages for 4 ranks"),
        (
            "interleaved",
            4,
            4,
            "it takes two or more stages a rank\n.*cut the model into 8 stages for 4 ranks",
        ),
        (
            "hanayo",
            6,
            2,
            "it takes an even number of stages a rank\n.*cut the model into 4 stages for 2 ranks",
        ),
        ("chimera", 3, None, "on an even number of ranks\n.*cut the model into 2 stages for 2 ranks"),
        ("interleaved", 1, None, "cut the model into 2 stages for 1 rank"),
        ("1f1b", 0, None, "cannot put 0 stages on 1 ranks"),
        ("1f1b", 4, 0, "cannot put 4 stages on 0 ranks"),
        ("auto", 6, 4, "it takes as many on each rank\n.*cut the model into 8 stages"),
    ],
)
def test_stages_and_ranks(name: str, stages: int, ranks: int | None, said: str) -> None:
    with pytest.raises(BadStages, match=said):
        by_name(name, stages, 8, ranks=ranks)


def test_options() -> None:
    assert by_name("seq-1f1b", 4, 8, slices=2).micro_batches == 16
    with pytest.raises(UnknownScheduleOption, match="terapipe has no option 'parts'; it has: slices"):
        by_name("terapipe", 4, 8, parts=2)
    with pytest.raises(
        UnknownScheduleOption, match="auto has no option 'slices'; it has: memory_limit_bytes"
    ):
        by_name("auto", 4, 8, slices=2)
    with pytest.raises(BadScheduleOption, match="seq-1f1b cannot take slices=0: it must be at least 1"):
        by_name("seq-1f1b", 4, 8, slices=0)
    with pytest.raises(
        BadScheduleOption, match=r"every=2: it must be at least 4, .* divide 16 micro-batches\n.*every=4"
    ):
        by_name("pipedream-2bw", 4, 16, every=2)
    with pytest.raises(
        NoScheduleFits, match="within 0 bytes; the named schedule that needs the least, 1f1b, needs 4"
    ):
        by_name("auto", 4, 8, memory_limit_bytes=0.5)


@pytest.mark.parametrize("name", ["zb-v", "auto"])
def test_costs_of_another_number_of_stages(name: str) -> None:
    with pytest.raises(ValueError, match="costs are of 3 stages"):
        by_name(name, 4, 8, ranks=2, costs=[EQUAL] * 3)
