"""Messages between stages: those of the simulated schedule, or fewer."""

from __future__ import annotations

import pytest

from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import FORMS, ONE_F_ONE_B, ScheduleForm
from shardc.cost.step.on_cluster import costs_on
from shardc.planning.auto.pipelines.messages import Messages
from shardc.planning.auto.space import Choice

CLUSTER = find_cluster("h100-8x4")
STREAM = 1e8
"""Bytes between two layers, for the whole batch."""
MESSAGES = Messages([(0.0, 1.0), (0.3, 2 * STREAM), (0.5, STREAM), (0.7, 3 * STREAM), (1.0, 1.0)], CLUSTER)
AXES = (("pipe", 4), ("nvlink", 8))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_each_device_sends_its_share_of_the_cheapest_cut(form: ScheduleForm) -> None:
    choice = Choice(4, 16, AXES, form=form)
    each = costs_on(CLUSTER, choice.mesh, "pipe").transfer_s(STREAM / 16 / 8)
    assert each > 0
    assert MESSAGES.seconds(choice) == pytest.approx(form.sends(4, 16) * each)


def test_a_step_without_stages_sends_none() -> None:
    assert MESSAGES.seconds(Choice(1, 1, (("infiniband", 4), ("nvlink", 8)))) == 0.0


def test_links_within_a_node_are_faster() -> None:
    outer = Choice(4, 16, AXES)
    inner = Choice(8, 16, (("data", 4), ("pipe", 8)))
    ratio = ONE_F_ONE_B.sends(8, 16) / ONE_F_ONE_B.sends(4, 16)
    assert MESSAGES.seconds(inner) < ratio * MESSAGES.seconds(outer)


def test_messages_of_towers_are_not_counted() -> None:
    """What crosses a cut inside of one tower is not sent there, if the other tower made it."""
    assert MESSAGES.seconds(Choice(4, 16, AXES, form=ScheduleForm(path=0.6))) == 0.0
