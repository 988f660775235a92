"""Recognition of the parameters that hold experts' matrices, by their uses."""

from __future__ import annotations

from shardc.passes.experts.batched import batched_parameters
from shardc.passes.experts.chosen_matrix import exchanges, is_cast, producer, table_row
from shardc.passes.manager.program import Node, Program

PRODUCT, OUTER = "shardc.expert_mm", "shardc.expert_outer"


def weight_argument(program: Program, node: Node) -> int | None:
    """Return the number of the argument whose matrices a product reads, through casts and transposes.

    None for any other call.
    """
    if node.spec.target != PRODUCT:
        return None
    value = node.operands[1]
    while (made := producer(program, value)) is not None:
        if not is_cast(made) and not exchanges(program, made):
            return None
        value = made.operands[0]
    return program.arguments.index(value)


def _bias_argument(program: Program, node: Node, routings: set[int]) -> int | None:
    """Return the number of the argument [experts, columns] that a call indexes by one of ``routings``."""
    found = table_row(program, node)
    if found is None or found[1] not in routings or program.producer[found[0]] >= 0:
        return None
    return program.arguments.index(found[0])


def expert_parameters(program: Program) -> list[str]:
    """Return the names of parameters [experts, ...]: matrices of products, and tables of biases.

    If no row chooses its expert, these are the parameters of :func:`batched_parameters`.
    """
    routings = {node.operands[2] for node in program.nodes if node.spec.target == PRODUCT}
    places = {weight_argument(program, node) for node in program.nodes}
    places |= {_bias_argument(program, node, routings) for node in program.nodes}
    known = sorted(p for p in places if p is not None) or batched_parameters(program)
    keys = [program.argument_key(place) for place in known]
    return [name for role, name in keys if role == "param"]
