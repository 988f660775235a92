"""Collectives among the actions: where they are placed, and that the checker refuses every other place that
is wrong.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.diagnostics.passes.pipeline import BadCollective
from shardc.dialects.pipe.action import Action, Collective, Step, Steps, parse_step
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.checks.check_collectives import check_collectives
from shardc.passes.pipeline.checks.check_transfers import check_transfers
from shardc.passes.pipeline.ranks.collectives import place_collectives
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.registry import SCHEDULES

ALL = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
WHOLE = [n for n, named in SCHEDULES.items() if "slices" not in named.options and "changes" not in named.says]


def placed(schedule: Schedule) -> Steps:
    return place_collectives(schedule, place_transfers(schedule), dict.fromkeys(range(schedule.stages), ALL))


@pytest.mark.parametrize("name", WHOLE)
def test_of_every_schedule_each_stage_has_each_once(name: str) -> None:
    schedule = by_name(name, 4, 8)
    steps = placed(schedule)
    check_collectives(schedule, steps)
    check_transfers(schedule, steps)
    found = [(rank, step) for rank, row in enumerate(steps) for step in row if isinstance(step, Collective)]
    wanted = {(schedule.rank_of[s], Collective(s, kind)) for s in range(schedule.stages) for kind in ALL}  # type: ignore[arg-type]
    assert len(found) == len(wanted) and set(found) == wanted


def test_reductions_start_while_other_stages_still_run() -> None:
    """Rank 0 of an interleaved schedule has gradients of its last stage long before it is through."""
    row = placed(by_name("interleaved", 4, 4, ranks=2))[0]
    reduces = row.index(Collective(2, "REDUCE_GRAD"))
    behind = [step for step in row[reduces:] if isinstance(step, Action)]
    assert behind and all(action.stage == 0 for action in behind)
    assert row[0] == Collective(0, "UNSHARD")
    gathers = row.index(Collective(2, "UNSHARD"))
    assert row[gathers + 1] == Action(0, "F", 1)
    first = next(i for i, step in enumerate(row) if isinstance(step, Action) and step.stage == 2)
    assert sum(isinstance(step, Action) for step in row[gathers:first]) == 1


def test_words_are_read_and_written() -> None:
    for text in ("3UNSHARD", "0RESHARD", "12REDUCE_GRAD", "1UNSHARD4"):
        assert str(parse_step(text)) == text


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("0F0 0UNSHARD 0B0 0RESHARD", "0F0 on rank 0 reads parameters of stage 0 that are not gathered"),
        ("0UNSHARD 0F0 0RESHARD 0B0", "0B0 on rank 0 reads parameters of stage 0 that are not gathered"),
        ("0UNSHARD 0UNSHARD 0F0 0B0", "0UNSHARD on rank 0 gathers parameters that are gathered already"),
        ("0RESHARD 0F0 0B0", "0RESHARD on rank 0 frees parameters that are not gathered"),
        ("0F0 0REDUCE_GRAD 0B0", "0B0 on rank 0 adds to gradients that 0REDUCE_GRAD has reduced"),
        ("0F0 0B0 0REDUCE_GRAD 0REDUCE_GRAD", "0REDUCE_GRAD on rank 0 occurs twice"),
        ("0F0 0B0 1REDUCE_GRAD", "1REDUCE_GRAD on rank 0 names a stage that the schedule does not have"),
    ],
)
def test_what_is_wrong_is_named(row: str, problem: str) -> None:
    schedule = by_name("1f1b", 1, 1)
    with pytest.raises(BadCollective, match=problem):
        check_collectives(schedule, (tuple(map(parse_step, row.split())),))


def sound(schedule: Schedule, steps: Steps) -> bool:
    """The same rules, said another way: of each stage, over the list of its rank."""
    for rank, row in enumerate(steps):
        for stage in {step.stage for step in row if isinstance(step, Action | Collective)}:
            mine = [step for step in row if isinstance(step, Action | Collective) and step.stage == stage]
            words = [
                str(step).lstrip("0123456789") if isinstance(step, Collective) else step.kind for step in mine
            ]
            collectives = [word for word in words if word in ALL]
            if collectives and schedule.rank_of[stage] != rank:
                return False
            if words.count("REDUCE_GRAD") > 1 or (
                "REDUCE_GRAD" in words and set(words[words.index("REDUCE_GRAD") :]) & set("BIW")
            ):
                return False
            gathers = [word for word in collectives if word != "REDUCE_GRAD"]
            if gathers != [("UNSHARD", "RESHARD")[i % 2] for i in range(len(gathers))]:
                return False
            there = not gathers
            for word in words:
                there = word == "UNSHARD" if word in ("UNSHARD", "RESHARD") else there
                if word in ("F", "B", "I", "W") and not there:
                    return False
    return True


@pytest.mark.slow
@given(st.data())
@settings(max_examples=400, deadline=None)
def test_mutations(data: st.DataObject) -> None:
    """Collectives that are swapped, moved, dropped and doubled: every broken list is refused, no sound one
    is.
    """
    name, stages = data.draw(st.sampled_from((("1f1b", 2), ("interleaved", 4), ("zb-v", 4))))
    schedule = by_name(name, stages, 4, ranks=2)
    rows: list[list[Step]] = [list(row) for row in placed(schedule)]
    for _ in range(data.draw(st.integers(0, 2))):
        row = data.draw(st.sampled_from(rows))
        at = data.draw(
            st.sampled_from([i for i, step in enumerate(row) if isinstance(step, Collective)] or [0])
        )
        other = data.draw(st.integers(0, len(row) - 1))
        what = data.draw(st.sampled_from(("move", "drop", "double", "elsewhere")))
        if what == "move":
            row.insert(other, row.pop(at))
        elif what == "double":
            row.insert(other, row[at])
        elif what == "elsewhere":
            rows[1 - rows.index(row)].append(row[at])
        else:
            del row[at]
    steps = tuple(map(tuple, rows))
    if sound(schedule, steps):
        check_collectives(schedule, steps)
    else:
        with pytest.raises(BadCollective):
            check_collectives(schedule, steps)
