"""Parameters that are stored in shards (ZeRO-3): the values of their storage, and views of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from torch_mlir import ir

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program, read_program
from shardc.passes.partition.operands import set_operand

T = TypeVar("T")
TRANSPOSES = frozenset(("aten.t", "aten.transpose.int", "aten.permute"))
_RESHAPES = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze.dim", "expand", "alias")
VIEWS = TRANSPOSES | {f"aten.{name}" for name in _RESHAPES}


def stored_parameters(program: Program) -> dict[int, frozenset[str]]:
    """Return the values of parameters' storage, with the axes that split only the storage.

    A value got those axes in a later round of propagation. A view or a cast of storage is storage, too, in
    the phases that compute with the parameter; the optimizer works on the shards.
    """
    found: dict[int, frozenset[str]] = {}
    for position, value in enumerate(program.arguments):
        rounds = program.attribute(position, "dist.priorities")
        if program.argument_key(position)[0] == "param" and rounds is not None:
            found[value] = frozenset(named.name for named in ir.DictAttr(rounds))
    return followed(program, found)


def followed(program: Program, stored: Mapping[int, T]) -> dict[int, T]:
    """Return stored parameters, and the values that are computed from one of them alone: views and casts."""
    found = dict(stored)
    for node in program.nodes:
        if len(node.operands) == 1 and node.operands[0] in found and len(node.results) == 1:
            found[node.results[0]] = found[node.operands[0]]
    return found


def views_of_storage(program: Program, stored: dict[int, frozenset[str]]) -> dict[int, frozenset[str]]:
    """Return the nodes that view storage outside the optimizer, with the storage's axes.

    They read the whole parameter, so that the parameter is gathered in its memory layout, not a transposed
    shard of it.
    """
    return {
        number: stored[node.operands[0]]
        for number, node in enumerate(program.nodes)
        if node.spec.target in VIEWS and node.operands[0] in stored and phase_of(node.op) != "optimizer"
    }


def split_by_phase(module: ir.Module, program: Program) -> Program:
    """Give each phase its own views of storage, so that a gathered parameter is not kept for another
    phase.
    """
    views = views_of_storage(program, stored_parameters(program))
    copies: dict[tuple[int, str], ir.Value] = {}

    def copied(value: int, phase: str, before: ir.Operation) -> ir.Value:
        """Return a phase's copy of a view, with copies of the views that it reads."""
        producer = program.producer[value]
        if producer not in views:
            return program.values[value]
        if (value, phase) not in copies:
            node = program.nodes[producer]
            source = copied(node.operands[0], phase, before)
            copy = node.op.clone(ir.InsertionPoint(before)).operation
            copy.operands[0] = source
            copy.attributes["dist.phase"] = ir.StringAttr.get(phase, before.context)
            copies[value, phase] = copy.results[0]
        return copies[value, phase]

    for number, node in enumerate(program.nodes):
        phase = phase_of(node.op)
        for position, value in enumerate(node.operands if number not in views else ()):
            producer = program.producer[value]
            if producer in views and phase_of(program.nodes[producer].op) != phase:
                set_operand(node.op, position, copied(value, phase, node.op))
    again = read_program(module) if copies else program
    assert again is not None
    return again
