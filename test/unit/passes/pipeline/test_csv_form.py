"""Schedules as files: torch.distributed.pipelining's own loader reads ours, and we read its."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.pipelining import schedules as theirs

from shardc.diagnostics.passes.pipeline import BadAction, BadSchedule, WrongStages
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.csv_form import read_csv, read_steps, write_csv
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.checks.check_collectives import check_collectives
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.checks.check_transfers import check_transfers
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.registry import SCHEDULES

WITH_ROUTES = ("chimera",)
"""Not every micro-batch goes through all stages, which torch's form cannot say."""
SIZES = {"terapipe": {"slices": 2}, "seq-1f1b": {"slices": 2}}


def torch_schedule(class_: type, schedule: Schedule) -> Any:
    """One of torch's schedules without processes: what its constructor needs them for is left out."""
    made = class_.__new__(class_)
    per_rank = schedule.stages // schedule.ranks
    made.pp_group_size, made._num_stages, made.num_stages = schedule.ranks, schedule.stages, schedule.stages
    made._n_microbatches, made._stages, made._defer_pp_recv = schedule.micro_batches, [], False
    made.n_local_stages, made.number_of_rounds = per_rank, max(1, schedule.micro_batches // schedule.ranks)
    made.microbatches_per_round = schedule.micro_batches // made.number_of_rounds
    made.pipeline_order = {}
    return made


def read_by_torch(path: Path, schedule: Schedule, form: str) -> Any:
    made = torch_schedule(theirs._PipelineScheduleRuntime, schedule)
    made._load_csv(str(path), format=form)
    return made


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in WITH_ROUTES])
def test_torch_loads_ours(name: str, tmp_path: Path) -> None:
    schedule = by_name(name, 4, 8, **SIZES.get(name, {}))
    path = tmp_path / "schedule.csv"
    path.write_text(write_csv(schedule))
    loaded = read_by_torch(path, schedule, "compute_only")
    ours = [[str(action) for action in order] for order in schedule.orders]
    assert [[str(action) for action in row] for row in loaded.pipeline_order.values()] == ours
    assert loaded.stage_index_to_group_rank == schedule.rank_of

    steps = place_transfers(schedule)
    path.write_text(write_csv(steps))
    loaded = read_by_torch(path, schedule, "compute_comms")
    loaded._simulate()  # raises where sends and receives get stuck
    assert [list(map(str, row)) for row in loaded.pipeline_order_with_comms.values()] == [
        list(map(str, row)) for row in steps
    ]


@pytest.mark.parametrize(
    "name", [name for name in SCHEDULES if name not in WITH_ROUTES and name not in SIZES]
)
def test_we_load_what_torch_writes(name: str, tmp_path: Path) -> None:
    """Its own placing of transfers, with what it does to parameters, passes our checker."""
    schedule = by_name(name, 4, 8)
    path = tmp_path / "schedule.csv"
    path.write_text(write_csv(schedule))
    loaded = read_by_torch(path, schedule, "compute_only")
    loaded._dump_csv(str(path), format="compute_comms")
    text = path.read_text()
    assert "SEND_F" in text or schedule.ranks == 1
    assert read_csv(text, stages=4).orders == schedule.orders
    check_transfers(schedule, read_steps(text), "batched")
    check_collectives(schedule, read_steps(text))
    loaded._dump_csv(str(path), format="compute_only")
    assert read_csv(path.read_text()).orders == schedule.orders


@pytest.mark.parametrize(
    ("name", "class_"),
    [
        ("interleaved", theirs.ScheduleInterleaved1F1B),
        ("dualpipe-v", theirs.ScheduleDualPipeV),
        ("zb-v", theirs.ScheduleZBVZeroBubble),
    ],
)
@pytest.mark.parametrize("ranks", (2, 4, 8))
def test_our_orders_are_those_of_torch(name: str, class_: type, ranks: int) -> None:
    """Of ZB-V without W's, which we put where they fill holes at the given costs."""
    schedule = by_name(name, 2 * ranks, 4 * ranks, ranks=ranks)
    made = torch_schedule(class_, schedule)
    text = io.StringIO()
    csv.writer(text).writerows(made._calculate_single_rank_operations(rank) for rank in range(ranks))
    loaded = read_csv(text.getvalue())
    check_schedule(loaded, 4 * ranks)
    kinds = "FI" if name == "zb-v" else "FBIW"
    for order, other in zip(schedule.orders, loaded.orders, strict=True):
        assert [a for a in order if a.kind in kinds] == [a for a in other if a.kind in kinds]


def test_csv_and_back() -> None:
    for name in SCHEDULES:
        schedule = by_name(name, 4, 8)
        again = read_csv(write_csv(schedule), routes=schedule.routes, slices=schedule.slices)
        assert again.orders == schedule.orders
        check_schedule(again)
    assert read_csv("0F0,,0B0\n").orders == ((Action(0, "F", 0), Action(0, "B", 0)),)
    assert read_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n").orders[0][1:3] == (Action(0, "F", 1), Action(0, "B", 0))


@pytest.mark.parametrize("text", ("F0\n", "0F\n", "0G1\n", "0F0 0F1\n", "-1F0\n", "0SEND0\n"))
def test_what_is_no_action_is_named(text: str) -> None:
    with pytest.raises(BadAction, match=f"'{text.strip()}' is not an action"):
        read_csv(text)


def test_a_file_for_another_cut() -> None:
    text = write_csv(by_name("1f1b", 4, 8))
    with pytest.raises(WrongStages, match="the schedule mine is for 4 stages, not for 6"):
        read_csv(text, "mine", stages=6)
    with pytest.raises(WrongStages, match="is for 4 ranks, not for 2"):
        read_csv(text, stages=4, ranks=2)
    with pytest.raises(BadSchedule, match="stage 1 has no action"):
        read_csv("0F0,0B0\n999999999F0,999999999B0\n")
    with pytest.raises(BadSchedule, match="stage 0 has no action"):
        read_csv("")
