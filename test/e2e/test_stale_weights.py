"""Asynchronous schedules on simulated ranks, against the loop in plain torch of ``stale_training.py``, in
f64.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import sum_of_squares
from pipelines import PIPELINED, PipelineRanks, Tower, captured, cut_step
from stale_training import CASES, Case, stages_of_parameters, stale_training
from torch_mlir import ir
from training import BOUND, errors

from shardc.backends.eager.proof.compare import compare_step, prove_step
from shardc.commands.check import check_artefact
from shardc.diagnostics.dialects.levels import RankProgramBroken
from shardc.diagnostics.oracle import ProgramsDiffer
from shardc.diagnostics.passes import pipeline as diagnostics
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule import Schedule, Updates
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.dialects.pipe.weight_versions import versions_held
from shardc.passes.pipeline.pipe_cut import PipeCut, cut_into_stages
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.step.compile_step import CompiledStep, compile_step
from shardc.step.values import example_inputs

STEPS = 2
NAMES = ("pipedream", "pipedream-2bw")


def cut(case: Case, schedule: str) -> ir.Module:
    return cut_step(
        case.model, case.ranks, case.micro_batches, PipeCut(schedule=schedule, stale_weights=True)
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("schedule", NAMES)
@pytest.mark.parametrize("case", CASES, ids=[f"{c.model}-{c.ranks}x{c.micro_batches}" for c in CASES])
def test_training_with_old_weights(case: Case, schedule: str) -> None:
    module = cut(case, schedule)
    wanted = stale_training(case, schedule, stages_of_parameters(module), STEPS)
    found, spread = PipelineRanks(captured(case.model), module).train(PIPELINED[case.model].batches(STEPS))
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        wrong = {key: error for key, error in errors(ours, theirs).items() if not error <= BOUND}
        assert not wrong, (
            f"step {number}: {len(wrong)} of {len(theirs)} tensors differ: {list(wrong.items())[:8]}"
        )
    assert spread == 0


@pytest.mark.parametrize("schedule", NAMES)
def test_every_action_says_which_weights_it_reads(schedule: str) -> None:
    case = CASES[1]
    module = cut(case, schedule)
    op = find_schedule(module)
    assert op is not None
    assert read_schedule(op) == by_name(schedule, case.ranks, case.micro_batches)
    for rank, function in enumerate(rank_functions(module)):
        ops = [o.operation for o in function.regions[0].blocks[0].operations]
        actions = [o.attributes for o in ops if o.name == "pipe.action"]
        said = {a["action"].value: a["version"].value for a in actions}
        for m in range(case.micro_batches):
            version = case.version(schedule, rank, m)
            assert said[f"{rank}F{m}"] == said[f"{rank}B{m}"] == version
        groups = case.micro_batches // case.every(schedule)
        assert [said[f"{rank}O{group}"] for group in range(groups)] == list(range(groups))


def test_stages_of_one_rank_update_by_themselves() -> None:
    """Nobody's schedule but ours: interleaved 1F1B, each stage updated behind each group of four."""
    case = CASES[0]
    order = by_name("interleaved", 4, case.micro_batches, ranks=2)
    schedule = Schedule("mine", order.orders, order.routes, updates=Updates(4, delay=1))
    assert set(versions_held(schedule).values()) == {2}
    module = captured(case.model).compile({"pipe": 2}, {}, case.micro_batches).rank_module
    cut_into_stages(module, schedule, "pipe", stale_weights=True)
    found, _ = PipelineRanks(captured(case.model), module).train(PIPELINED[case.model].batches(STEPS))
    four = Case(case.model, 4, case.micro_batches, case.share)  # 2BW's versions are the same on all stages
    wanted = stale_training(four, "pipedream-2bw", dict.fromkeys(stages_of_parameters(module), 0), STEPS)
    for ours, theirs in zip(found, wanted, strict=True):
        assert max(errors(ours, theirs).values()) <= BOUND


def compile_tower(**options: Any) -> CompiledStep:
    model = Tower()
    given = {
        "mesh": {"pipe": 2},
        "plan": "pipeline",
        "micro_batches": 4,
        "schedule": "pipedream-2bw",
        **options,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return compile_step(model, optimizer, (torch.randn(16, 64),), loss=sum_of_squares, **given)


@pytest.mark.slow
def test_old_weights_must_be_asked_for() -> None:
    said = r"pipedream-2bw changes the mathematics.*\n.*stale_weights=True"
    with pytest.raises(diagnostics.ChangesMathematics, match=said):
        compile_tower()
    with pytest.raises(diagnostics.ChangesMathematics):
        compile_tower(schedule=by_name("pipedream", 2, 4))
    assert "changes the mathematics" not in str(compile_tower(schedule="1f1b", stale_weights=True).plan)


@pytest.mark.slow
def test_the_proof_says_what_is_equal_to_what() -> None:
    step = compile_tower(stale_weights=True, mesh={"pipe": 2, "data": 2}, plan="pipeline*zero1", verify=True)
    proof = step.check(steps=2)
    assert proof.passed and "pipedream-2bw changes the mathematics" in proof.render()
    assert "pipeline: pipedream-2bw, 2 stages, 4 micro-batches; changes the mathematics" in str(step.plan)


@pytest.mark.slow
def test_the_proof_finds_the_wrong_version() -> None:
    """The backward of a micro-batch on newer weights than its forward, what PipeDream without stashing would
    do: refused by the check of labels, and by the values.
    """
    step = compile_tower(stale_weights=True, schedule="pipedream")
    compiled = step.compiled
    module = compiled.pipeline_module
    assert module is not None
    (function, *_) = rank_functions(module)
    ops = [o.operation for o in function.regions[0].blocks[0].operations]
    of = {o.attributes["action"].value: o for o in ops if o.name == "pipe.action"}
    newer, older = (of[name].operands[0].owner.operation.operands for name in ("0B2", "0B1"))
    weights = [i for i, (a, b) in enumerate(zip(newer, older, strict=True)) if _is_updated(a) and a != b]
    assert weights
    for i in weights:
        older[i] = newer[i]
    with pytest.raises(RankProgramBroken, match="0B1 takes the weights that 0O0 made"):
        prove_step(compiled.global_module, module, _inputs(step), uncut=compiled.rank_module)
    outcome = compare_step(compiled.global_module, module, _inputs(step), uncut=compiled.rank_module)
    assert not outcome.passed


def test_a_proof_needs_the_step_before_it_was_cut() -> None:
    step = compile_tower(stale_weights=True)
    assert step.compiled.pipeline_module is not None
    with pytest.raises(ProgramsDiffer, match="pipedream-2bw changes the mathematics"):
        prove_step(step.compiled.global_module, step.compiled.pipeline_module, _inputs(step))


@pytest.mark.slow
def test_an_artefact_is_checked(tmp_path: Any) -> None:
    compile_tower(stale_weights=True).save(tmp_path / "out")
    report = check_artefact(tmp_path / "out", 1)
    assert report.passed
    assert "equal to what its schedule says, which is not the single-device program" in report.render()


def test_an_update_of_several_stages_is_refused() -> None:
    """The norm of all gradients is of all stages; so is a weight that the first and the last of
    them share.
    """
    cutting = PipeCut(schedule="pipedream", stale_weights=True)
    with pytest.raises(
        diagnostics.OneUpdateForAll, match=r"involves stages 0 and 1, because .* reads values of all"
    ) as clipped:
        cut_step("skips", 2, 4, cutting, clip=0.1)
    assert "layers.0.weight" in str(clipped.value)
    with pytest.raises(
        diagnostics.OneUpdateForAll, match=r"transformer.wte.weight cannot .*\n.*at: .*modeling_gpt2"
    ):
        cut_step("gpt2", 2, 4, cutting)


def test_two_routes_are_refused() -> None:
    order = by_name("chimera", 2, 4)
    schedule = Schedule("mine", order.orders, order.routes, updates=Updates(1))
    module = captured("skips").compile({"pipe": 2}, {}, 4).rank_module
    with pytest.raises(diagnostics.OneRouteOnly, match="mine has 2 routes"):
        cut_into_stages(module, schedule, "pipe", stale_weights=True)


def _is_updated(value: ir.Value) -> bool:
    """Whether an optimizer among the actions made a value."""
    unpack = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if unpack is None or unpack.name != "torch.prim.TupleUnpack":
        return False
    made = unpack.operands[0].owner.operation
    return made.name == "pipe.action" and "O" in made.attributes["action"].value


def _inputs(step: CompiledStep) -> dict[tuple[str, str], torch.Tensor]:
    return example_inputs(step.compiled.capture, step._optimizer, step._batch)
