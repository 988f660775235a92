"""The work of a row's step, from shardc's program for a model of three layers cut into three stages.

Layers of a row are equal: the first stage has the embedding and a layer, the second a layer, the last a layer
and the head. All other stages are made of these.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch_mlir import ir

from shardc import compile_step
from shardc.cost.step_work import Section, StageWork, StepWork
from shardc.report.read_step import read_step
from megatron.gpt import Gpt
from megatron.rows import Row

STAGES = 3


def work_of(row: Row, micro_batch: int, stages: int) -> StepWork:
    """The work of a row cut into equal ``stages``. Raises ValueError if they do not divide its layers."""
    count, rest = divmod(row.layers, stages)
    if rest:
        raise ValueError(f"{row.layers} layers in {stages} stages")
    program = _program(
        row.hidden, row.heads, row.sequence, row.vocabulary, micro_batch, row.tensor, row.data
    )
    return grown(program, stages, count)


def grown(program: StepWork, stages: int, layers: int) -> StepWork:
    """A step of ``stages`` of ``layers`` each, from one of three stages of a layer each."""
    first, middle, last = program.stages
    once_first, once_middle, once_last = program.ranks
    if stages == 1:
        whole = first.then(middle.times(layers - 2)).then(last)
        return StepWork((whole,), ((*once_first, *_times(once_middle, layers - 2), *once_last),))
    more, between = middle.times(layers - 1), [middle.times(layers)] * (stages - 2)
    once_more, once_between = _times(once_middle, layers - 1), [_times(once_middle, layers)] * (stages - 2)
    return StepWork(
        (replace(first.then(more), sent_bytes=first.sent_bytes), *between, more.then(last)),
        ((*once_first, *once_more), *once_between, (*once_more, *once_last)),
    )


def _times(sections: tuple[Section, ...], count: int) -> tuple[Section, ...]:
    return tuple(replace(section, times=section.times * count) for section in sections if count)


@cache
def _program(
    hidden: int, heads: int, sequence: int, vocabulary: int, micro_batch: int, tensor: int, data: int
) -> StepWork:
    padded = -(-vocabulary // (128 * tensor)) * 128 * tensor
    with torch.device("meta"):
        model = Gpt(hidden, heads, STAGES, sequence, padded).half()
        batch = torch.empty(STAGES * micro_batch * data, sequence, dtype=torch.int64)
    step = compile_step(
        model,
        torch.optim.Adam(model.parameters()),
        {"ids": batch, "labels": batch},
        mesh={"pipe": STAGES, "data": data, "tensor": tensor},
        plan="pipeline*data*tensor",
        micro_batches=STAGES,
        recompute="full",
        stages=[f"layers.{n}" for n in range(1, STAGES)],
    )
    module = step.compiled.pipeline_module
    assert isinstance(module, ir.Module)
    return read_step(module)
