"""Work of a row's step, from shardc's program for a model of one layer, split into three stages.

The first stage is the embedding, the second the layer, which is recomputed, the last the norm and the head.
All stages of a row are made of these, as its layers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch
from torch_mlir import ir

from megatron.gpt import Gpt
from megatron.rows import Row
from shardc import compile_step
from shardc.cost.step.work import Section, StepWork
from shardc.report.step.read_step import read_step

CUTS = ("layers.0", "norm")
"""Where the second and the third stage start."""
RECOMPUTE = ("none", "full", "none")
SOME = 2
"""Devices along the axis of data that the program is compiled for, where there are several."""


def work_of(row: Row, micro_batch: int, stages: int) -> StepWork:
    """The work of a row cut into stages of as equal numbers of layers as there can be."""
    each, more = divmod(row.layers, stages)
    sizes = (row.hidden, row.heads, row.sequence, row.vocabulary)
    program = compiled(*sizes, micro_batch, row.tensor, min(row.data, SOME)).resized("data", row.data)
    return grown(program, [each + (stage < more) for stage in range(stages)], row.tensor)


def grown(program: StepWork, layers: Sequence[int], tensor: int) -> StepWork:
    """A step with so many ``layers`` in each stage, from the one of an embedding, a layer and a head.

    Each of ``tensor`` devices sends its part of an activation, which they gather in the node (Narayanan et
    al., SC21, section 4.1).
    """
    embedding, layer, head = program.stages
    layer = replace(layer, sent_bytes=layer.sent_bytes / tensor)
    once_first, once_layer, once_last = map(_without_host, program.ranks)
    stages = [layer.times(count) for count in layers]
    ranks = [_times(once_layer, count) for count in layers]
    stages[0], ranks[0] = embedding.then(stages[0]), (*once_first, *ranks[0])
    stages[-1], ranks[-1] = stages[-1].then(head), (*ranks[-1], *once_last)
    return StepWork(tuple(stages), tuple(ranks))


def _times(sections: tuple[Section, ...], count: int) -> tuple[Section, ...]:
    return tuple(replace(section, times=section.times * count) for section in sections)


def _without_host(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Apex and DeepSpeed update all parameters by few kernels."""
    return tuple(replace(s, items=tuple(replace(item, calls=0) for item in s.items)) for s in sections)


@cache
def compiled(
    hidden: int, heads: int, sequence: int, vocabulary: int, micro_batch: int, tensor: int, data: int
) -> StepWork:
    """The work of the program of one layer. The vocabulary is padded as Megatron does."""
    padded = -(-vocabulary // (128 * tensor)) * 128 * tensor
    with torch.device("meta"):
        model = Gpt(hidden, heads, 1, sequence, padded).half()
        batch = torch.empty(2 * micro_batch * data, sequence, dtype=torch.int64)
    step = compile_step(
        model,
        torch.optim.Adam(model.parameters()),
        {"ids": batch, "labels": batch},
        mesh={"pipe": len(RECOMPUTE), "data": data, "tensor": tensor},
        plan="pipeline*data*tensor",
        micro_batches=2,
        recompute=RECOMPUTE,
        stages=CUTS,
        fuse=False,
    )
    module = step.compiled.pipeline_module
    assert isinstance(module, ir.Module)
    return read_step(module)
