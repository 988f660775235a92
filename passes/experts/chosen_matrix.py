"""Recognition of values: matrices that an index selects for each row, rows behind views, zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import torch

from shardc.passes.manager.program import Node, Program

_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.unsqueeze", "aten.squeeze.dim")
_CASTS = ("aten._to_copy", "prims.convert_element_type")
_FILLED = ("aten.full", "aten.new_zeros", "aten.zeros", "aten.zeros_like")


@dataclass(frozen=True)
class ChosenMatrix:
    """``w[ids]``: for each of S rows, a matrix of ``w`` [E, K, N].

    ``turned``: its last two dims are swapped. ``casts``: calls that change its dtype, in order.
    """

    w: int
    ids: int
    turned: bool = False
    casts: tuple[Node, ...] = field(default=())


def producer(program: Program, value: int) -> Node | None:
    """The call that makes a value; None for an argument."""
    number = program.producer[value]
    return program.nodes[number] if number >= 0 else None


def chosen_matrix(program: Program, value: int) -> ChosenMatrix | None:
    """What ``value`` [S, K, N] chooses, behind transposes and casts; None if it is no such choice."""
    turned, casts = False, []
    while (node := producer(program, value)) is not None:
        if is_cast(node):
            casts.append(node)
        elif exchanges(program, node):
            turned = not turned
        else:
            found = indexed(program, node)
            return None if found is None else ChosenMatrix(*found, turned, tuple(reversed(casts)))
        value = node.operands[0]
    return None


def is_cast(node: Node) -> bool:
    """Whether a call changes a dtype alone."""
    return node.spec.target in _CASTS


def indexed(program: Program, node: Node) -> tuple[int, int] | None:
    """The matrices [E, K, N] and the integers [S] of ``w[ids]``."""
    if node.spec.target != "aten.index.Tensor" or len(node.operands) != 2:
        return None
    return choice(program, node)


def table_row(program: Program, node: Node) -> tuple[int, int] | None:
    """The table [E, N] and the integers [S] of ``table[ids]``: a bias for each row."""
    if node.spec.target != "aten.index.Tensor" or len(node.operands) != 2:
        return None
    return choice(program, node, rank=2)


def table_sum(program: Program, node: Node) -> tuple[int, int] | None:
    """The rows [S, N] and the integers [S] of a table's gradient: ``zeros.index_put([ids], rows, True)``."""
    is_sum = node.spec.target == "aten.index_put" and len(node.operands) == 3 and node.spec["accumulate"]
    found = choice(program, node, rank=2) if is_sum else None
    if found is None or not is_zero(program, found[0]):
        return None
    return node.operands[2], found[1]


def choice(program: Program, node: Node, rank: int = 3) -> tuple[int, int] | None:
    """The tensor of ``rank`` dims and the integers [S] of a call that reads or writes ``tensor[ids]``."""
    matrices, ids = node.operands[:2]
    is_first = len(node.spec.args[1]) > 0 and node.spec.args[1][0] is not None
    types = program.types[matrices], program.types[ids]
    if not is_first or len(types[0].shape) != rank or len(types[1].shape) != 1:
        return None
    return (matrices, ids) if types[1].dtype in (torch.int64, torch.int32) else None


def exchanges(program: Program, node: Node) -> bool:
    """Whether a call exchanges the last two of three dims."""
    if node.spec.target != "aten.transpose.int" or len(program.types[node.results[0]].shape) != 3:
        return False
    return {d % 3 for d in node.spec.args[1:]} == {1, 2}


def rows_behind(program: Program, value: int, shape: tuple[int, int]) -> int | None:
    """The value [S, K] that ``value`` is a view of, with a dim of 1 more; None if no call made it so."""
    while True:
        if program.types[value].shape == shape:
            return value
        node = producer(program, value)
        is_view = node is not None and (node.spec.target in _VIEWS or exchanges(program, node))
        if node is None or not is_view or not _is_spread(program.types[node.operands[0]].shape, shape):
            return None
        value = node.operands[0]


def _is_spread(shape: tuple[int, ...], rows: tuple[int, int]) -> bool:
    """Whether a shape is that of rows with dims of 1 between; neither of their sizes is 1."""
    return tuple(size for size in shape if size != 1) == rows


def flat_views(program: Program, value: int, shape: tuple[int, int]) -> Iterator[Node]:
    """The calls that read ``value`` and are views of it as rows of ``shape``."""
    for node in (program.nodes[n] for n in program.users[value]):
        if node.spec.target in _VIEWS and program.types[node.results[0]].shape == shape:
            yield node


def is_zero(program: Program, value: int) -> bool:
    """Whether a value is made of zeros."""
    node = producer(program, value)
    if node is None or node.spec.target not in _FILLED:
        return False
    return node.spec.target != "aten.full" or node.spec["fill_value"] == 0


def row_shape(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """[S, K] of rows [S, 1, K] or [S, K, 1]; None if a size of theirs is 1, which says too little."""
    found = tuple(size for size in shape if size != 1)
    return (found[0], found[1]) if len(shape) == 3 and len(found) == 2 and prod(found) else None
