"""Gradients that are reduced, and parameters that are gathered, among the actions of a pipeline: equal to one
device, and sent as often as is said.
"""

from __future__ import annotations

import pytest
from pipelines import captured, check_pipeline
from torch_mlir import ir

from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes.pipeline import ScheduleNotYet
from shardc.dialects.dist.collectives.names import COLLECTIVES
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.options.pipeline import Pipeline
from shardc.passes.pipeline.ranks.inline_collectives import inlined
from shardc.step.fuse_step import fuse_step
from shardc.step.shard import Compiled

MESH = {"pipe": 2, "data": 2}


def compiled(name: str, plan: str, schedule: str, gather: str = "micro-batch") -> Compiled:
    options = Pipeline(schedule=schedule, gather=gather)
    return captured(name).compile(MESH, f"pipeline*{plan}", 4, options)


def actions(module: ir.Module) -> list[list[str]]:
    """Each rank's actions and collectives in order."""
    found = []
    for function in rank_functions(module):
        ops = (o.operation for o in function.regions[0].blocks[0].operations)
        found.append([op.attributes["action"].value for op in ops if op.name == "pipe.action"])
    return found


def sent(module: ir.Module) -> dict[str, int]:
    """How often each kind of collective runs in a step, on all ranks of the pipeline: in each action of a
    stage, and around them.
    """
    count: dict[str, int] = {}
    stages = {
        op.operation.attributes["sym_name"].value: op.operation
        for op in module.body
        if op.operation.name == "pipe.stage"
    }
    for function in rank_functions(module):
        for op in (o.operation for o in function.regions[0].blocks[0].operations):
            body = stages[op.attributes["stage"].value] if op.name == "pipe.action" else None
            inner = [o.operation for o in body.regions[0].blocks[0].operations] if body else [op]
            for one in inner:
                if one.name in COLLECTIVES:
                    count[one.name] = count.get(one.name, 0) + 1
    return count


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "plan", "schedule", "gather"),
    [
        ("skips", "data", "interleaved", "micro-batch"),
        ("skips", "zero1", "zb-v", "micro-batch"),
        ("skips", "zero3", "1f1b", "step"),
        ("skips", "zero3", "zb-h1", "step"),
        ("skips", "zero3", "chimera", "step"),
        ("gpt2", "zero1", "interleaved", "micro-batch"),
        ("gpt2", "zero3", "1f1b", "step"),
        ("llama", "zero3", "interleaved", "step"),
    ],
)
def test_equals_one_device(name: str, plan: str, schedule: str, gather: str) -> None:
    module = compiled(name, plan, schedule, gather).pipeline_module
    assert module is not None
    word = "UNSHARD" if gather == "step" else "REDUCE_GRAD"
    assert all(any(word in action for action in row) for row in actions(module))
    check_pipeline(name, module)
    check_pipeline(name, inlined(module))


def test_gradients_of_a_stage_are_reduced_right_behind_its_last_backward() -> None:
    module = compiled("skips", "data", "interleaved").pipeline_module
    assert module is not None
    row = actions(module)[0]
    at = row.index("2REDUCE_GRAD")
    assert row[at - 1] == "2B3" and row[at + 1 :] == ["0B2", "0B3", "0REDUCE_GRAD"]


def test_parameters_are_gathered_once_a_step() -> None:
    """And not for each of 4 micro-batches, in forward and again in backward: 16 gathers of two stages become
    2.
    """
    often, once = (
        compiled("skips", "zero3", "1f1b", gather).pipeline_module for gather in ("micro-batch", "step")
    )
    assert often is not None and once is not None
    assert (sent(often)["dist.all_gather"], sent(once)["dist.all_gather"]) == (16, 2)
    assert sent(often)["dist.reduce_scatter"] == sent(once)["dist.reduce_scatter"]


def test_a_gather_starts_ahead_of_the_first_message() -> None:
    module = compiled("skips", "zero3", "1f1b", "step").pipeline_module
    assert module is not None
    text = emit_program(module)
    last = text[text.index("def step_1(") :].splitlines()
    lines = [i for i, line in enumerate(last) if "all_gather" in line or "message_0.wait()" in line]
    assert "all_gather" in last[lines[0]] and ".wait()" in last[lines[1]]


@pytest.mark.slow
def test_with_kernels() -> None:
    step = compiled("skips", "zero3", "interleaved", "step")
    fuse_step(step)
    assert step.kernel_module is not None
    check_pipeline("skips", step.kernel_module)
    assert "UNSHARD" not in emit_program(step.kernel_module)


@pytest.mark.slow
def test_a_weight_that_stages_share_is_reduced_behind_them() -> None:
    """GPT-2's tied embedding is summed over two ranks first: its reduction is no action of either."""
    module = compiled("gpt2", "data", "1f1b").pipeline_module
    assert module is not None
    last = [o.operation.name for f in rank_functions(module) for o in f.regions[0].blocks[0].operations]
    assert "dist.all_reduce" in last
    check_pipeline("gpt2", module)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"gather": "batch"}, BadArgument, "did you mean 'micro-batch'"),
        ({"gather": "step", "memory_limit_bytes": 1e9}, ScheduleNotYet, "does not count"),
    ],
)
def test_what_cannot_be_had_is_named(options: dict, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        captured("skips").compile(MESH, "pipeline*zero3", 4, Pipeline(**options))
