"""The vocabulary weights of a language model: the embedding table and the output layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program

_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.unsqueeze", "aten.clone", "aten._to_copy")
_COPIES = ("aten._to_copy", "prims.convert_element_type")
Column = tuple[str, int, int]
"""Name and value of a matmul's weight, and its column dim."""


def vocabulary_cuts(program: Program, columns: Sequence[Column]) -> dict[str, int]:
    """Map embedding tables and the output layer to their vocabulary dims.

    The output layer is the last of ``columns``, the weights in no chain, with as many columns as a table has
    rows. Both are split, as in Megatron (Shoeybi et al. 2019), or none: a split table alone costs a reduction
    of activations, and a split output layer alone leaves the table whole.
    """
    tables = dict(_tables(program))
    scores = [(n, v, dim) for n, v, dim in columns if program.types[v].shape[dim] in tables.values()]
    if not scores:
        return {}
    name, value, dim = scores[-1]
    words = program.types[value].shape[dim]
    return {**{table: 0 for table, size in tables.items() if size == words}, name: dim}


def _tables(program: Program) -> Iterator[tuple[str, int]]:
    """Yield embedding tables that an integer input indexes, with their numbers of rows."""
    keys = dict(zip(program.arguments, program.argument_keys(), strict=True))
    for node in program.nodes:
        if node.spec.target != "aten.embedding" or phase_of(node.op) not in ("", "forward"):
            continue
        table, ids = (
            _source(program, value, kinds)
            for value, kinds in zip(node.operands, (_COPIES, _VIEWS), strict=False)
        )
        if keys.get(table, ("",))[0] == "param" and keys.get(ids, ("",))[0] == "input":
            yield keys[table][1], program.types[table].shape[0]


def _source(program: Program, value: int, through: tuple[str, ...]) -> int:
    """Follow first operands back through calls of these kinds, and return the value found."""
    while (number := program.producer[value]) >= 0 and program.nodes[number].spec.target in through:
        value = program.nodes[number].operands[0]
    return value
