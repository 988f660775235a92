"""Schedules of stages that are no chain: they run on all transports, and are no longer than a chain's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.cost.memory import in_flight
from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.diagnostics.passes.pipeline import BadSchedule, BadScheduleOption, UnknownScheduleOption
from shardc.dialects.pipe.action import Transfer
from shardc.dialects.pipe.csv_form import read_csv, read_steps, write_csv
from shardc.dialects.pipe.stage_graph import Reads, StageGraph
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.checks.check_transfers import Mode, check_transfers
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.by_name import schedule
from shardc.passes.pipeline.schedules.registry import SCHEDULES

MODES: tuple[Mode, ...] = ("blocking", "batched", "buffered", "paired")
GRAPHS = [name for name, named in SCHEDULES.items() if named.takes_graphs]
PAIRS: Reads = ((), (0,), (), (2,), (1, 3))


@st.composite
def graphs(draw: st.DrawFn) -> Reads:
    """Some stages, of which each reads a few earlier ones."""
    count = draw(st.integers(2, 6))
    return tuple(
        tuple(sorted(draw(st.sets(st.integers(0, stage - 1), max_size=2)))) if stage else ()
        for stage in range(count)
    )


def test_schedules_of_one_stage_a_rank_take_graphs() -> None:
    assert GRAPHS == ["fill-drain", "1f1b", "zb-h1", "zb-h2"]


@pytest.mark.parametrize("name", GRAPHS)
@given(reads=graphs(), micro_batches=st.integers(1, 9))
def test_every_graph_runs_on_every_transport(name: str, reads: Reads, micro_batches: int) -> None:
    made = schedule(name, len(reads), micro_batches, reads=reads)
    check_schedule(made, micro_batches)
    steps = place_transfers(made)
    for mode in MODES:
        check_transfers(made, steps, mode)
    assert read_steps(write_csv(steps)) == steps
    assert read_csv(write_csv(made), name, reads=reads) == made


@pytest.mark.parametrize("name", ["1f1b", "fill-drain"])
@given(
    reads=graphs(),
    micro_batches=st.integers(1, 9),
    seconds=st.lists(st.integers(1, 5), min_size=6, max_size=6),
)
def test_a_graph_is_no_slower_than_the_chain(
    name: str, reads: Reads, micro_batches: int, seconds: list[int]
) -> None:
    """Stages of equal times; with others, of which a stage waits less often, only the order of fill-drain."""
    equal = [1.0] * 6 if name == "1f1b" else seconds
    costs = [StageCost(s, s, s) for s in equal][: len(reads)]
    chain, graph = (schedule(name, len(reads), micro_batches, reads=r) for r in ((), reads))
    assert simulate(graph, costs).step_s <= simulate(chain, costs).step_s


@given(reads=graphs(), micro_batches=st.integers(1, 9))
def test_1f1b_of_equal_stages_takes_its_longest_path_and_one_slot_for_each_other_micro_batch(
    reads: Reads, micro_batches: int
) -> None:
    made = schedule("1f1b", len(reads), micro_batches, reads=reads)
    longest = StageGraph(reads).longest
    assert simulate(made, [StageCost(1, 1, 1)] * len(reads)).step_s == 3 * (micro_batches + longest - 1)
    assert in_flight(made) == [min(micro_batches, 1 + n) for n in StageGraph(reads).behind]


def test_sends_name_the_stage_at_the_other_end() -> None:
    steps = place_transfers(schedule("1f1b", 5, 2, reads=PAIRS))
    received = [
        str(s) for s in steps[4] if isinstance(s, Transfer) and s.kind == "RECV_F" and not s.micro_batch
    ]
    assert received == ["4RECV_F0:1", "4RECV_F0:3"]
    sent = [str(s) for s in steps[4] if isinstance(s, Transfer) and s.kind == "SEND_B" and not s.micro_batch]
    assert sent == ["4SEND_B0:1", "4SEND_B0:3"]


def test_zero_bubbles_hold_no_more_than_the_longest_path() -> None:
    for name, most in (("zb-h1", 3), ("zb-h2", 5)):
        costs = [StageCost(1, 1, 1, weight_bytes=1.0)] * 5
        peaks = simulate(schedule(name, 5, 12, reads=PAIRS), costs).peak_bytes(costs)
        assert max(peaks) == most


def test_wrong_reads() -> None:
    with pytest.raises(BadScheduleOption, match="cannot take reads"):
        schedule("1f1b", 3, 4, reads=((), (2,), (1,)))
    with pytest.raises(UnknownScheduleOption, match="zb-v has no option 'reads'"):
        schedule("zb-v", 4, 4, reads=((), (0,), (), (1, 2)))
    made = schedule("1f1b", 3, 4, reads=((), (), (0, 1)))
    with pytest.raises(BadSchedule, match="stage 1 reads 2, not earlier stages"):
        check_schedule(replace(made, reads=((), (2,), (0, 1))))
    with pytest.raises(BadSchedule, match="has reads of 2 stages"):
        check_schedule(replace(made, reads=((), (0,))))
    late = replace(made, reads=((), (0,), (1,)))
    check_schedule(late)  # an order may wait for more than it was made for
