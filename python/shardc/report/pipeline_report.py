"""Report of a compiled pipeline: memory and traffic of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.cost.memory import in_flight
from shardc.diagnostics.text import size_text
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.pipe.kept import read_kept
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule import Schedule
from shardc.runtime.check import STATE_ROLES


@dataclass(frozen=True)
class PipelineRank:
    """Rank of a pipeline: its ``stages``, and bytes of state, of messages in a step and at the peak.

    Bytes are on each device. ``peak_bytes`` is None if unknown.
    """

    stages: tuple[int, ...]
    state_bytes: int
    sent_bytes: int
    peak_bytes: int | None = None


@dataclass(frozen=True)
class PipelineStage:
    """Activations that a stage keeps from forward to backward, in bytes on each device.

    ``kept_bytes``: of one micro-batch; ``before_bytes``: the same without recomputation. ``in_flight``: the
    maximum number of micro-batches at a time.
    """

    recompute: str
    kept_bytes: int
    before_bytes: int
    in_flight: int


@dataclass(frozen=True)
class PipelineReport:
    """Pipeline with its ranks. ``kept``: activations of each stage; empty if micro-batches are sliced."""

    schedule: Schedule
    ranks: list[PipelineRank]
    kept: list[PipelineStage]

    @property
    def title(self) -> str:
        s = self.schedule
        text = f"pipeline: {s.name}, {s.stages} stages, {s.micro_batches // s.slices} micro-batches"
        if s.reads:
            text += f", {s.graph.longest} on the longest path"
        if s.slices > 1:
            text += f" of {s.slices} slices ({', '.join(map(str, s.lengths))} tokens)"
        if s.changes_mathematics:
            text += "; changes the mathematics: gradients of older weights are applied to newer ones"
        return text

    @property
    def evicted(self) -> list[str]:
        """Return a line for each rank that keeps activations on another one, with their bytes in a step."""
        found: dict[tuple[int, int], list[int]] = {}
        for eviction in self.schedule.evictions:
            place = self.schedule.route(eviction.micro_batch).index(eviction.stage)
            pair = self.schedule.rank_of[eviction.stage], eviction.rank
            found.setdefault(pair, []).append(self.kept[place].kept_bytes if self.kept else 0)
        return [
            f"rank {home} keeps activations on rank {guest}: {len(sizes)} times a step, "
            f"{size_text(sum(sizes))}"
            for (home, guest), sizes in sorted(found.items())
        ]


def reads_of_ranks(schedule: Schedule) -> list[str]:
    """Return, for each rank, the stages that its stages read, as text."""
    texts = [", ".join(map(str, row)) or "none" for row in schedule.graph.reads]
    stages = [
        sorted(s for s, holder in schedule.rank_of.items() if holder == r) for r in range(schedule.ranks)
    ]
    return ["; ".join(texts[stage] for stage in mine) for mine in stages]


def describe_pipeline(module: ir.Module, schedule: Schedule, peaks: Sequence[int | None]) -> PipelineReport:
    """Return the report of a level 3 or 4 module with a program for each rank. ``peaks``: bytes per rank."""
    ranks = []
    for rank, (function, peak_bytes) in enumerate(zip(rank_functions(module), peaks, strict=True)):
        stages = tuple(sorted(stage for stage, holder in schedule.rank_of.items() if holder == rank))
        ranks.append(PipelineRank(stages, _state_bytes(function), _sent_bytes(function), peak_bytes))
    noted = read_kept(module)
    flying = in_flight(schedule) if noted else []
    kept = [PipelineStage(*found, count) for found, count in zip(noted, flying, strict=True)]
    return PipelineReport(schedule, ranks, kept)


def _state_bytes(function: ir.Operation) -> int:
    block = function.regions[0].blocks[0]
    pairs = zip(block.arguments, function.attributes["arg_attrs"], strict=True)
    return sum(_size(value.type) for value, given in pairs if given["dist.role"].value in STATE_ROLES)


def _sent_bytes(function: ir.Operation) -> int:
    ops = (o.operation for o in function.regions[0].blocks[0].operations)
    sent = (op.operands[0].type for op in ops if op.name == "pipe.send")
    return sum(_size(type_) for message in sent for type_ in element_types(message) or [])


def _size(type_: ir.Type) -> int:
    found = read_type(type_)
    return 0 if found is None else found.size_bytes
