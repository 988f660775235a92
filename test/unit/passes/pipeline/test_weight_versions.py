"""Asynchronous schedules: the weights that each micro-batch uses, and the trained result."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shardc.diagnostics.passes.pipeline import BadSchedule
from shardc.dialects.pipe.schedule import Schedule, Updates
from shardc.dialects.pipe.weight_versions import forward_weights, versions_held
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.schedules.asynchronous import pipe_dream, pipe_dream_2bw
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.one_f_one_b import one_f_one_b
from shardc.passes.pipeline.schedules.registry import SCHEDULES


@pytest.mark.parametrize("ranks", (1, 2, 4, 8))
def test_versions(ranks: int) -> None:
    """PipeDream keeps one for each micro-batch in flight, 2BW two (section 3 of its paper)."""
    assert versions_held(pipe_dream(ranks, 2 * ranks)) == {rank: ranks - rank for rank in range(ranks)}
    assert set(versions_held(pipe_dream_2bw(ranks, 4 * ranks)).values()) == {2}
    assert set(versions_held(one_f_one_b(ranks, 2 * ranks)).values()) == {1}


@pytest.mark.parametrize("name", SCHEDULES)
def test_only_the_asynchronous_ones_change_the_mathematics(name: str) -> None:
    schedule = by_name(name, 4, 8)
    assert schedule.changes_mathematics == (name in ("pipedream", "pipedream-2bw"))
    assert schedule.changes_mathematics or set(versions_held(schedule).values()) == {1}


def trained(schedule: Schedule, rate: float) -> list[list[float]]:
    """Each stage's weights after each of its updates: stage s multiplies by its weight, the loss is half the
    square of the distance to 1. Runs the actions in order, with the weights that ``forward_weights`` says.
    """
    version = {use.action: use.version for use in forward_weights(schedule)}
    made = [[torch.tensor(0.9 + 0.1 * s, dtype=torch.float64)] for s in range(schedule.stages)]
    sums = [0.0] * schedule.stages
    counts = [0] * schedule.stages
    sent: dict[tuple[str, int, int], torch.Tensor] = {}
    left = [list(order) for order in schedule.orders]
    while any(left):
        for order in left:
            while order and _ready(order[0], sent, schedule.stages):
                stage, kind, m = action = order.pop(0)
                if kind == "F":
                    taken = sent.get(("F", stage - 1, m), torch.tensor(1.0 + 0.1 * m, dtype=torch.float64))
                    weight = made[stage][version[action]]
                    sent["in", stage, m], sent["weight", stage, m], sent["F", stage, m] = (
                        taken,
                        weight,
                        taken * weight,
                    )
                else:
                    out = sent["F", stage, m]
                    given = sent["B", stage + 1, m] if stage + 1 < schedule.stages else out - 1
                    sent["B", stage, m] = given * sent["weight", stage, m]
                    sums[stage] += float(given * sent["in", stage, m])
                    counts[stage] += 1
                    if schedule.updates is not None and counts[stage] % schedule.updates.every == 0:
                        made[stage].append(made[stage][-1] - rate * sums[stage])
                        sums[stage] = 0.0
    return [[float(weight) for weight in weights] for weights in made]


def _ready(action, sent, stages: int) -> bool:
    stage, kind, m = action
    if kind == "F":
        return stage == 0 or ("F", stage - 1, m) in sent
    return ("F", stage, m) in sent and (stage + 1 == stages or ("B", stage + 1, m) in sent)


def test_2bw_is_gradient_descent_with_a_delay_of_one() -> None:
    """W(t+1) = W(t) - rate * gradient at W(t-1), the same on every stage (PipeDream-2BW, section 3.1)."""
    ranks, every, groups, rate = 3, 4, 5, 0.01
    made = trained(pipe_dream_2bw(ranks, every * groups, every), rate)
    weights = [torch.tensor([0.9, 1.0, 1.1], dtype=torch.float64)]
    for group in range(groups):
        at = weights[max(0, group - 1)].clone().requires_grad_()
        inputs = 1.0 + 0.1 * torch.arange(group * every, (group + 1) * every, dtype=torch.float64)
        (0.5 * (inputs * at.prod() - 1) ** 2).sum().backward()
        weights.append(weights[-1] - rate * at.grad)
    expected = torch.stack(weights).T
    torch.testing.assert_close(torch.tensor(made, dtype=torch.float64), expected, rtol=1e-12, atol=0)


def test_pipedream_takes_the_newest_weights_of_each_stage() -> None:
    """The last stage has none in flight, so its k-th micro-batch sees k updates; the first is ``ranks - 1``
    behind.
    """
    ranks = 4
    uses = {use.action: use.version for use in forward_weights(pipe_dream(ranks, 12))}
    for action, version in uses.items():
        assert version == max(0, action.micro_batch - (ranks - 1 - action.stage))


def test_groups_smaller_than_the_pipeline_are_refused() -> None:
    with pytest.raises(BadSchedule, match="needs version 1 of its weights"):
        check_schedule(replace(one_f_one_b(8, 16), updates=Updates(every=2, delay=1)))
