"""Recognition of values in level 1: matrices that an index selects for each row, views of rows, zeros."""

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
    """Value ``w[ids]``: for each of S rows, a matrix of ``w`` [E, K, N].

    ``w``, ``ids``: numbers of the values. ``turned``: True if the last two dims are swapped. ``casts``:
    calls that change the dtype, in order.
    """

    w: int
    ids: int
    turned: bool = False
    casts: tuple[Node, ...] = field(default=())


def producer(program: Program, value: int) -> Node | None:
    """Return the call that makes a value; None for an argument."""
    number = program.producer[value]
    return program.nodes[number] if number >= 0 else None


def chosen_matrix(program: Program, value: int) -> ChosenMatrix | None:
    """Return the ChosenMatrix of which ``value`` [S, K, N] is a transpose or cast; None if there is none."""
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
    """Return whether a call only changes a dtype."""
    return node.spec.target in _CASTS


def indexed(program: Program, node: Node) -> tuple[int, int] | None:
    """Return the matrices [E, K, N] and the integers [S] of ``w[ids]``; None for any other call."""
    if node.spec.target != "aten.index.Tensor" or len(node.operands) != 2:
        return None
    return choice(program, node)


def table_row(program: Program, node: Node) -> tuple[int, int] | None:
    """Return the table [E, N] and the integers [S] of ``table[ids]``, a bias for each row; else None."""
    if node.spec.target != "aten.index.Tensor" or len(node.operands) != 2:
        return None
    return choice(program, node, rank=2)


def table_sum(program: Program, node: Node) -> tuple[int, int] | None:
    """Return the rows [S, N] and the integers [S] of a table's gradient; None for any other call.

    The gradient is ``zeros.index_put([ids], rows, True)``.
    """
    is_sum = node.spec.target == "aten.index_put" and len(node.operands) == 3 and node.spec["accumulate"]
    found = choice(program, node, rank=2) if is_sum else None
    if found is None or not is_zero(program, found[0]):
        return None
    return node.operands[2], found[1]


def choice(program: Program, node: Node, rank: int = 3) -> tuple[int, int] | None:
    """Return the tensor and the integers [S] of a call that reads or writes ``tensor[ids]``.

    None if ``tensor`` does not have ``rank`` dims, or if ``ids`` is no vector of integers.
    """
    matrices, ids = node.operands[:2]
    is_first = len(node.spec.args[1]) > 0 and node.spec.args[1][0] is not None
    types = program.types[matrices], program.types[ids]
    if not is_first or len(types[0].shape) != rank or len(types[1].shape) != 1:
        return None
    return (matrices, ids) if types[1].dtype in (torch.int64, torch.int32) else None


def exchanges(program: Program, node: Node) -> bool:
    """Return whether a call swaps the last two of three dims."""
    if node.spec.target != "aten.transpose.int" or len(program.types[node.results[0]].shape) != 3:
        return False
    return {d % 3 for d in node.spec.args[1:]} == {1, 2}


def rows_behind(program: Program, value: int, shape: tuple[int, int]) -> int | None:
    """Return the value [S, K] of which ``value`` is a view with an added dim of size 1; None if none is."""
    while True:
        if program.types[value].shape == shape:
            return value
        node = producer(program, value)
        is_view = node is not None and (node.spec.target in _VIEWS or exchanges(program, node))
        if node is None or not is_view or not _is_spread(program.types[node.operands[0]].shape, shape):
            return None
        value = node.operands[0]


def _is_spread(shape: tuple[int, ...], rows: tuple[int, int]) -> bool:
    """Return whether ``shape`` is ``rows`` with added dims of size 1. No size in ``rows`` may be 1."""
    return tuple(size for size in shape if size != 1) == rows


def flat_views(program: Program, value: int, shape: tuple[int, int]) -> Iterator[Node]:
    """Yield the calls that view ``value`` as rows of ``shape``."""
    for node in (program.nodes[n] for n in program.users[value]):
        if node.spec.target in _VIEWS and program.types[node.results[0]].shape == shape:
            yield node


def is_zero(program: Program, value: int) -> bool:
    """Return whether a value is a tensor of zeros."""
    node = producer(program, value)
    if node is None or node.spec.target not in _FILLED:
        return False
    return node.spec.target != "aten.full" or node.spec["fill_value"] == 0


def row_shape(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Return [S, K] of a shape [S, 1, K] or [S, K, 1]; None if S or K is 1, which would be ambiguous."""
    found = tuple(size for size in shape if size != 1)
    return (found[0], found[1]) if len(shape) == 3 and len(found) == 2 and prod(found) else None
