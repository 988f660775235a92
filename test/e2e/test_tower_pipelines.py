"""Pipelines with towers beside each other, against eager training on one device, to 1e-9 in f64."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from models import default_f64
from pipelines import PipelineRanks, check_ranks
from test_pipelines import _emitted_steps
from torch_mlir import ir
from tower_models import TOWERS, clip
from training import Captured, capture, train_eagerly

import shardc
from shardc.backends.torch.emit import emit_program
from shardc.cost.simulate import simulate
from shardc.diagnostics.passes.pipeline import StageNotRead
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.dialects.pipe.stage_graph import Reads
from shardc.options.pipeline import Pipeline
from shardc.passes.pipeline.checks.check_transfers import check_transfers
from shardc.passes.pipeline.schedules.by_name import schedule
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL

BESIDE: Reads = ((), (), (0, 1))
"""Two towers of a stage each, and the stage that joins them."""
PAIRS: Reads = ((), (0,), (), (2,), (1, 3))
"""Two towers of two stages each."""


@cache
def _captured(name: str) -> Captured:
    return capture(TOWERS[name])


def _cut(name: str, mesh: dict[str, int], plan: str = "pipeline", **options: object) -> ir.Module:
    module = _captured(name).compile(mesh, plan, 4, Pipeline(**options)).pipeline_module  # type: ignore[arg-type]
    assert module is not None
    return module


def _schedule(module: ir.Module) -> Schedule:
    found = find_schedule(module)
    assert found is not None
    return read_schedule(found)


def _check(name: str, module: ir.Module) -> None:
    training = TOWERS[name]
    check_ranks(PipelineRanks(_captured(name), module), training.batches(2), train_eagerly(training, 2))


CASES = [
    ("towers", ("right.0", "joint"), "1f1b", BESIDE),
    ("towers", 5, "fill-drain", PAIRS),
    ("woven", 5, "zb-h1", PAIRS),
    ("tied", ("item.0", "score"), "1f1b", BESIDE),
    ("tied", ("item.0", "score"), "zb-h1", BESIDE),
    ("three", ("images.0", "images.1", "joint"), "zb-h2", ((), (), (), (0, 1, 2))),
    ("siglip", 4, "1f1b", ((), (0,), (), (1, 2))),
    ("siglip", 4, "zb-h1", ((), (0,), (), (1, 2))),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "stages", "order", "reads"), CASES)
def test_equals_one_device(name: str, stages: int | tuple[str, ...], order: str, reads: Reads) -> None:
    module = _cut(name, {"pipe": len(reads)}, schedule=order, stages=stages)
    assert _schedule(module).reads == reads
    _check(name, module)


@pytest.mark.parametrize(
    ("name", "second", "joint", "plan", "gather"),
    [
        ("tied", "item.0", "score", "pipeline*data", "micro-batch"),
        ("tied", "item.0", "score", "pipeline*zero3", "micro-batch"),
        ("towers", "right.0", "joint", "pipeline*zero3", "step"),
    ],
)
def test_towers_beside_data_parallelism(name: str, second: str, joint: str, plan: str, gather: str) -> None:
    """Gradients of a weight in both towers are summed over both, and reduced."""
    module = _cut(name, {"pipe": 3, "data": 2}, plan, stages=(second, joint), gather=gather)
    assert _schedule(module).reads == BESIDE
    _check(name, module)


def test_what_both_towers_hold_is_sent_once_a_step() -> None:
    """Gradients of tied weights, at the end; no tower sends the other one anything before."""
    module = _cut("tied", {"pipe": 3}, stages=("item.0", "score"))
    for rank, function in enumerate(rank_functions(module)[:2]):
        ops = (o.operation for o in function.regions[0].blocks[0].operations)
        sent = [
            (op.attributes["to"].value, op.attributes["tag"].value) for op in ops if op.name == "pipe.send"
        ]
        assert {tag.split()[0] for to, tag in sent if to == 1 - rank} <= {"sum", "value"}
        assert [tag for to, tag in sent if to == 2] == [f"2F{m}" for m in range(4)]


@pytest.mark.parametrize("order", ["1f1b", "fill-drain", "zb-h1", "zb-h2"])
def test_the_program_sends_and_receives_in_an_order_that_ends(order: str) -> None:
    module = _cut("towers", {"pipe": 5}, stages=5, schedule=order)
    made = _schedule(module)
    check_transfers(made, _emitted_steps(emit_program(module), made), "paired")


@pytest.mark.parametrize("order", ["interleaved", "zb-v", "chimera"])
def test_other_schedules_keep_the_chain(order: str) -> None:
    made = _schedule(_cut("towers", {"pipe": 2}, schedule=order))
    assert made.reads == ()


def test_towers_in_stages_take_less_time_than_in_a_chain() -> None:
    costs, sizes = [EQUAL] * 5, (5, 8)
    for name in ("1f1b", "fill-drain", "zb-h1"):
        chain, graph = schedule(name, *sizes), schedule(name, *sizes, reads=PAIRS)
        assert simulate(graph, costs).step_s < simulate(chain, costs).step_s
    assert simulate(schedule("1f1b", *sizes, reads=PAIRS), costs).step_s == 3 * (8 + 3 - 1)


def test_a_schedule_of_ones_own_says_what_stages_read() -> None:
    own = schedule("1f1b", 3, 4, reads=BESIDE)
    module = _cut("towers", {"pipe": 3}, schedule=own, stages=("right.0", "joint"))
    assert _schedule(module) == own
    with pytest.raises(StageNotRead, match="stage 2 needs values of stage 0, which it does not read"):
        _cut("towers", {"pipe": 3}, schedule=schedule("1f1b", 3, 4, reads=((), (), (1,))), stages=3)


def test_recomputation_in_towers() -> None:
    found = _captured("towers").compile(
        {"pipe": 3}, "pipeline", 4, Pipeline(stages=("right.0", "joint")), recompute="full"
    )
    assert found.pipeline_module is not None and _schedule(found.pipeline_module).reads == BESIDE
    _check("towers", found.pipeline_module)


@pytest.mark.slow
def test_a_contrastive_loss_within_each_micro_batch() -> None:
    """CLIP of transformers, whose loss compares all pairs of a batch."""
    with default_f64():
        torch.manual_seed(0)
        model = clip()
        batch = {
            "input_ids": torch.randint(0, 32, (16, 8)),
            "pixel_values": torch.randn(16, 3, 8, 8),
            "return_loss": True,
        }
        step = shardc.compile_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            batch,
            mesh={"pipe": 3},
            plan="pipeline",
            micro_batches=4,
            per_micro_batch=True,
        )
        assert step.check().passed


def test_a_tower_keeps_activations_on_an_emptier_rank() -> None:
    stages = ("right.0", "right.1", "right.2", "joint.0", "joint.2")
    found = _captured("uneven").compile(
        {"pipe": 6}, "pipeline", 8, Pipeline(stages=stages, balance_activations=True)
    )
    assert found.pipeline_module is not None
    made = _schedule(found.pipeline_module)
    assert made.reads == ((), (), (1,), (2,), (0, 3), (4,)) and made.evictions
    _check("uneven", found.pipeline_module)
