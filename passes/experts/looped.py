"""Recognition of experts in a loop: each multiplies all rows, and a mask keeps its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.cost.work import flops
from shardc.dialects.location import source_line
from shardc.passes.experts.chosen_matrix import is_cast, producer
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program

_PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.matmul")
_ONE = "aten.select.int"
_PARTS = (_ONE, "aten.unbind.int")
_SAME = ("aten.t", "aten.transpose.int", "aten.permute", "aten.view", "aten.unsqueeze")


@dataclass(frozen=True)
class Looped:
    """Parameters [experts, ...] whose matrices are read by separate products, one for each expert.

    ``name``, ``experts``, ``where``: name, number of experts and source line of the first parameter.
    ``share``: part of the forward's floating-point operations in such products, from 0 to 1.
    """

    name: str
    experts: int
    share: float
    where: str | None


def looped_experts(program: Program) -> Looped | None:
    """Return the experts that products read one by one; None if no parameter has all its experts read so."""
    forward = [node for node in program.nodes if phase_of(node.op) == "forward"]
    read: dict[int, dict[int, list[Node]]] = {}
    for node in (node for node in forward if node.spec.target in _PRODUCTS):
        for place, index in _matrices(program, node):
            read.setdefault(place, {}).setdefault(index, []).append(node)
    looped = {place: found for place, found in read.items() if len(found) == _experts(program, place)}
    if not looped:
        return None
    own = [node for found in looped.values() for nodes in found.values() for node in nodes]
    share = sum(flops(node.spec) for node in own) / sum(flops(node.spec) for node in forward)
    place = min(looped)
    where = source_line(looped[place][0][0].op.location)
    return Looped(program.argument_key(place)[1], len(looped[place]), share, where)


def _experts(program: Program, place: int) -> int:
    return program.types[program.arguments[place]].shape[0]


def _matrices(program: Program, node: Node) -> Iterator[tuple[int, int]]:
    """Yield each parameter of which a product reads one expert's matrix, and the expert's number."""
    for value in node.operands:
        made = producer(program, value)
        while made is not None and (is_cast(made) or made.spec.target in _SAME):
            value = made.operands[0]
            made = producer(program, value)
        if made is None or made.spec.target not in _PARTS or made.spec["dim"] != 0:
            continue
        place = _parameter(program, made.operands[0])
        if place is not None:
            yield place, made.spec["index"] if made.spec.target == _ONE else made.results.index(value)


def _parameter(program: Program, value: int) -> int | None:
    """Return the argument number of a parameter [experts, ., .]; None for any other value."""
    if program.producer[value] >= 0 or len(program.types[value].shape) != 3:
        return None
    place = program.arguments.index(value)
    return place if program.argument_key(place)[0] == "param" else None
