"""Moves backward ops to the stage that reads them, if that sends no more bytes."""

from __future__ import annotations

from torch_mlir import ir

from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.stages.places import Assignment
from shardc.passes.pipeline.stages.step_program import size_bytes


def sink_backward(found: Assignment) -> None:
    """Move ops that read only gradients to the last of the stages that read their results.

    Initially a backward op is in the last stage that can run it. So a view, a transpose or a sum of the
    gradient that crosses a cut would be computed before the cut and sent in addition to the gradient. Terms
    of sums over micro-batches are not moved.
    """
    ops, place, before = found.ops, found.place, found.graph.before
    kept = {fold.term for fold in found.folds}
    readers: dict[ir.Value, list[ir.Value]] = {}
    for op in ops:
        for value in reads(op):
            readers.setdefault(value, []).append(op.results[0])

    def stages_of(value: ir.Value) -> list[int]:
        return [place[reader][0] for reader in readers.get(value, ()) if reader in place]

    for op in reversed(ops):
        own, operands = place.get(op.results[0]), list(dict.fromkeys(reads(op)))
        read = [result for result in op.results if result in readers]
        if own is None or own[1] == "F" or not read or any(result in kept for result in op.results):
            continue
        readers_of = [stage for result in read for stage in stages_of(result)]
        target = max(readers_of, default=own[0])
        made = [found.place_of(value) for value in operands]
        if target >= own[0] or any(where is None or where[1] == "F" for where in made):
            continue
        if not before[target].issuperset(readers_of):
            continue  # stages beside each other read it
        new = [v for v in operands if before[target].isdisjoint(stages_of(v))]
        if (sum(map(size_bytes, new)), len(new)) <= (sum(map(size_bytes, read)), len(read)):
            place[op.results[0]] = target, own[1]
