"""Work of a step that is repeated, joined, and put on another mesh."""

from shardc.cost.step.work import Item, Section, StageWork, StepWork, chain, repeat
from shardc.dialects.dist.axis import Axis

FIRST = Item("matmul", "forward", moved_bytes=1.0)
SECOND = Item("memory", "forward", needs=(0,), moved_bytes=2.0)


def test_repeated_items_wait_for_those_before() -> None:
    assert [item.needs for item in repeat((FIRST, SECOND), 3)] == [(), (0,), (1,), (2,), (3,), (4,)]
    assert repeat((FIRST, SECOND), 0) == ()


def test_what_waits_for_nothing_in_a_part_waits_for_the_part_before() -> None:
    assert [item.needs for item in chain([(FIRST,), (), (FIRST, SECOND, FIRST)])] == [(), (0,), (1,), (0,)]


def test_a_joined_stage_runs_forward_in_order_and_backward_in_reverse() -> None:
    early = StageWork({"F": (FIRST,), "B": (FIRST,)}, sent_bytes=8.0)
    late = StageWork({"F": (SECOND,), "B": (SECOND,), "REDUCE_GRAD": (FIRST,)}, sent_bytes=16.0)
    both = early.then(late)
    assert [item.moved_bytes for item in both.actions["F"]] == [1.0, 2.0]
    assert [item.moved_bytes for item in both.actions["B"]] == [2.0, 1.0]
    assert both.actions["REDUCE_GRAD"] == (FIRST,)
    assert both.sent_bytes == 16.0


def test_layers_are_repeated_in_every_action() -> None:
    layer = StageWork({"F": (FIRST,), "B": (FIRST, SECOND)}, 8.0).times(3)
    assert {kind: len(items) for kind, items in layer.actions.items()} == {"F": 3, "B": 6}
    assert layer.sent_bytes == 8.0


def test_an_axis_gets_another_size_wherever_it_stands() -> None:
    data, tensor = Axis("data", 1, 2), Axis("tensor", 1, 4)
    both = Item("collective", "backward", collective="all_reduce", axes=(data, tensor))
    work = StepWork((StageWork({"REDUCE_GRAD": (both,)}),), ((Section((both, FIRST), times=2),),))
    larger = work.resized("data", 64)
    wanted = (Axis("data", 1, 64), tensor)
    assert larger.stages[0].actions["REDUCE_GRAD"][0].axes == wanted
    assert [item.axes for item in larger.ranks[0][0].items] == [wanted, ()]
    assert larger.ranks[0][0].times == 2
