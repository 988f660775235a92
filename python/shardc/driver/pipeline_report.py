"""What a compile says of its pipeline: who holds and sends how much."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.dialects.roles import STATE_ROLES


@dataclass(frozen=True)
class PipelineRank:
    """One rank of a pipeline: its ``stages``, the bytes of its state on each device,
    and those that it sends in a step.
    """

    stages: tuple[int, ...]
    state_bytes: int
    sent_bytes: int


@dataclass(frozen=True)
class PipelineReport:
    """The schedule of a pipeline, and its ranks."""

    schedule: str
    stages: int
    micro_batches: int
    ranks: list[PipelineRank]
    changes_mathematics: bool = False
    slices: int = 1
    """Into how many slices of tokens each micro-batch is cut."""

    @property
    def title(self) -> str:
        text = f"pipeline: {self.schedule}, {self.stages} stages, {self.micro_batches} micro-batches"
        if self.slices > 1:
            text += f" of {self.slices} slices"
        if self.changes_mathematics:
            text += "; changes the mathematics: gradients of older weights are applied to newer ones"
        return text


def describe_pipeline(module: ir.Module | None) -> PipelineReport | None:
    """Of a module of level 3 with a program for each rank; None without one."""
    op = None if module is None else find_schedule(module)
    if module is None or op is None:
        return None
    schedule = read_schedule(op)
    ranks = []
    for rank, function in enumerate(rank_functions(module)):
        stages = tuple(sorted(stage for stage, holder in schedule.rank_of.items() if holder == rank))
        ranks.append(PipelineRank(stages, _state_bytes(function), _sent_bytes(function)))
    micro_batches = schedule.micro_batches // schedule.slices
    return PipelineReport(
        schedule.name, schedule.stages, micro_batches, ranks, schedule.changes_mathematics, schedule.slices
    )


def _state_bytes(function: ir.Operation) -> int:
    block = function.regions[0].blocks[0]
    pairs = zip(block.arguments, function.attributes["arg_attrs"], strict=True)
    return sum(_size(value.type) for value, attributes in pairs if attributes["dist.role"].value in STATE_ROLES)


def _sent_bytes(function: ir.Operation) -> int:
    ops = (o.operation for o in function.regions[0].blocks[0].operations)
    sent = (op.operands[0].type for op in ops if op.name == "pipe.send")
    return sum(_size(type_) for message in sent for type_ in element_types(message) or [])


def _size(type_: ir.Type) -> int:
    found: TensorType | None = read_type(type_)
    return 0 if found is None else found.size_bytes
