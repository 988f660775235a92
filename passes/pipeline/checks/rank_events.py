"""Events of a pipeline's ranks, in order, with the values that they pass; read from level 3 or 4."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Literal

from torch_mlir import ir

from shardc.dialects.dist.tuples import packed, unpacked
from shardc.dialects.location import source_line
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.stage import StageOp

EventKind = Literal["action", "send", "receive", "wait"]


@dataclass(frozen=True)
class Event:
    """An event of a rank. ``label`` is the action, or the tag of a message to or from rank ``peer``.

    ``receive`` starts a receive, and its only value is a handle until its ``wait``. ``reads`` and ``makes``
    are values of one micro-batch or of the weights; sums over micro-batches are left out. An action runs the
    stage ``body`` for micro-batch ``number``, which is None if only the label states it. ``version`` is the
    stated version of the weights that it reads.
    """

    kind: EventKind
    label: str
    peer: int = -1
    reads: tuple[Hashable, ...] = ()
    makes: tuple[Hashable, ...] = ()
    types: str = ""
    body: str = ""
    number: int | None = None
    version: int | None = None
    where: str | None = None


def sums_of_stages(module: ir.Module) -> dict[str, int]:
    """Map the symbol of each ``pipe.stage`` to the number of its last arguments and results that are sums."""
    stages = [o.operation for o in module.body.operations if o.operation.name == StageOp.OPERATION_NAME]
    found = {op.attributes["sym_name"].value: op.attributes for op in stages}
    return {name: said["sums"].value if "sums" in said else 0 for name, said in found.items()}


def read_events(module: ir.Module) -> list[list[Event]]:
    """Return the events of each rank of a pipeline; empty for a module without a pipeline."""
    sums = sums_of_stages(module)
    return [
        [event for op in function.regions[0].blocks[0].operations for event in _events(op.operation, sums)]
        for function in rank_functions(module)
    ]


def _events(op: ir.Operation, sums: dict[str, int]) -> Iterator[Event]:
    said, where = op.attributes, source_line(op.location)
    if op.name == "pipe.send":
        types = str(op.operands[0].type)
        reads = tuple(packed(list(op.operands)))
        yield Event("send", said["tag"].value, said["to"].value, reads, types=types, where=where)
    elif op.name == "pipe.receive":
        tag, source, value = said["tag"].value, said["source"].value, op.results[0]
        yield Event("receive", tag, source, makes=(value,), types=str(value.type), where=where)
        yield Event("wait", tag, source, (value,), tuple(unpacked([value])), where=where)
    elif op.name == "pipe.action":
        body = said["stage"].value
        reads, makes = packed(list(op.operands)), unpacked(list(op.results))
        kept = slice(0, -sums[body] if sums.get(body) else None)
        version = said["version"].value if "version" in said else None
        values = tuple(reads[kept]), tuple(makes[kept])
        yield Event("action", said["action"].value, -1, *values, body=body, version=version, where=where)
