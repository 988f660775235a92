"""``schedule="auto"``: the fastest on the step's cluster of all that its devices hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn
from torch_mlir import ir

import shardc
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster
from shardc.cost.step.on_cluster import costs_on
from shardc.diagnostics.passes.pipeline import NoScheduleFits, ScheduleNotYet, ScheduleWithoutCluster
from shardc.options.pipeline import Pipeline
from shardc.passes.pipeline.pipe_cut import cut_pipeline
from shardc.passes.pipeline.schedules.synthesis import Choice, named_choices
from shardc.report.step.step_time import step_time
from shardc.step.compile_step import CompiledStep
from shardc.step.schedule.choose import choose_schedule, with_schedule
from shardc.step.schedule.stage_costs import Cutting, stage_costs

MESH, MICRO_BATCHES = {"pipe": 2}, 8


def compiled(**options: object) -> CompiledStep:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())]
    model = nn.Sequential(*layers).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"mesh": MESH, "plan": "pipeline", "micro_batches": MICRO_BATCHES, "fuse": False, **options}
    batch = torch.randn(512, 64, dtype=torch.float64)
    return shardc.compile_step(model, optimizer, batch, loss=lambda out, _: out.square().mean(), **given)


@cache
def cluster(link_bytes_s: float = 1e12) -> Cluster:
    """Slow devices, whose time is the work's, and links of one rate."""
    found = find_cluster("cpu")
    device = found.devices[0]
    slow = replace(device, flop_s=replace(device.flop_s, f32=1e9), launch_s=0.0, memory_bytes=1e12)
    levels = [replace(level, bandwidth_bytes_s=link_bytes_s, latency_s=0.0) for level in found.levels]
    return replace(found, devices=(slow,), levels=tuple(levels))


@cache
def module() -> ir.Module:
    return compiled().compiled.rank_module


def chosen(on: Cluster, **options: object) -> Choice:
    return choose_schedule(module(), "pipe", Pipeline(schedule="auto", **options), "none", on)


def named(on: Cluster) -> Iterator[Choice]:
    """All schedules with a name, on one and on two stages a rank."""
    for stages in (2, 4):
        costs = stage_costs(module(), Cutting(("none",) * stages), costs_on(on, MESH, "pipe"))
        yield from named_choices(2, MICRO_BATCHES, costs)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("link_bytes_s", [1e12, 1e8, 1e7])
@pytest.mark.parametrize("part", [1.0, 0.7, 0.4])
def test_none_that_fits_is_faster(link_bytes_s: float, part: float) -> None:
    on = cluster(link_bytes_s)
    peaks = [choice.peak_bytes for choice in named(on)]
    limit = min(peaks) + part * (max(peaks) - min(peaks))
    found = chosen(on, memory_limit_bytes=limit)
    assert found.peak_bytes <= limit
    fitting = [choice.timeline.step_s for choice in named(on) if choice.fits(limit)]
    assert fitting and found.timeline.step_s <= min(fitting)


def test_slow_links_want_fewer_stages() -> None:
    """Of two stages a rank each micro-batch is sent three times as often."""
    fast, slow = chosen(cluster(1e12)), chosen(cluster(2e6))
    assert len(fast.costs) == 4 and len(slow.costs) == 2
    assert fast.schedule != slow.schedule


def test_the_cap_of_the_clusters_devices_decides() -> None:
    roomy = chosen(cluster())
    device = replace(cluster().devices[0], memory_bytes=0.6 * roomy.peak_bytes)
    tight = chosen(replace(cluster(), devices=(device,)))
    assert tight.peak_bytes <= device.memory_bytes < roomy.peak_bytes
    assert tight.schedule.orders != roomy.schedule.orders
    assert tight.timeline.step_s > roomy.timeline.step_s


def test_none_fits() -> None:
    with pytest.raises(NoScheduleFits, match=r"within 1,000 bytes; .* needs the least") as caught:
        chosen(cluster(), memory_limit_bytes=1000.0)
    least = min(named(cluster()), key=lambda choice: choice.peak_bytes)
    assert caught.value.fields["least"] == least.peak_bytes
    assert chosen(cluster(), memory_limit_bytes=least.peak_bytes).peak_bytes <= least.peak_bytes


def test_the_simulated_step_is_the_plans() -> None:
    """What it is chosen by is what ``shardc plan`` says of it, the update aside."""
    found, copied = chosen(cluster()), compiled(schedule="1f1b").compiled.rank_module
    cut_pipeline(copied, "pipe", Pipeline(schedule=found.schedule))
    time = step_time(copied, cluster())
    pipelined_s = time.seconds - time.causes.get("optimizer", 0.0)
    assert pipelined_s == pytest.approx(found.timeline.step_s, rel=0.02)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [None, 1.0e6])
def test_the_step_is_that_of_one_device(limit: float | None) -> None:
    step = compiled(schedule="auto", cluster=cluster(), memory_limit_bytes=limit, verify=True)
    written = step.compiled.pipeline_module
    assert written is not None


def test_faster_ranks_get_one_stage_each() -> None:
    found = chosen(cluster(), speeds=(3.0, 1.0))
    assert len(found.costs) == 2
    alike = stage_costs(module(), Cutting(("none",) * 2, speeds=(1.0, 1.0)), costs_on(cluster(), MESH))
    assert found.costs[0].forward_s < alike[0].forward_s * 2 / 3  # more layers, three times as fast
    assert found.costs[0].activation_bytes > alike[0].activation_bytes
    with pytest.raises(ScheduleNotYet, match="one stage each"):
        chosen(cluster(), speeds=(3.0, 1.0), stages=4)


def test_no_cluster() -> None:
    with pytest.raises(ScheduleWithoutCluster, match="cluster='h100-8x8'"):
        with_schedule(module(), "pipe", Pipeline(schedule="auto"), "none", None)
    options = Pipeline(schedule="zb-h1")
    assert with_schedule(module(), "pipe", options, "none", None) is options
