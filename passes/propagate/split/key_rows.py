"""Keys and values of a padded sequence: the slice that attention reads, and the pad of their gradients.

A sequence of 38 rows over 4 devices is stored as 40, of which attention reads 38 keys. Devices divide 40 rows
and not 38, so all-to-alls exchange the 40, before the slice and after the pad.
"""

from __future__ import annotations

from shardc.dialects.aten.call import OpCall
from shardc.passes.manager.program import Node, Program

HEADS, ROWS = 1, 2


def trim_before(program: Program, value: int, ways: int) -> Node | None:
    """Return the slice that removes the padding of ``value`` over ``ways`` devices, or None."""
    producer = program.producer[value]
    node = program.nodes[producer] if producer >= 0 else None
    return node if node is not None and 0 < _dropped(node.spec) < ways else None


def pads_after(program: Program, value: int, ways: int) -> tuple[Node, ...]:
    """Return the readers of ``value`` if each pads its rows for ``ways`` devices, else ()."""
    nodes = tuple(program.nodes[n] for n in program.users[value])
    added = {_added(node.spec) for node in nodes}
    fits = len(added) == 1 and all(0 < n < ways for n in added)
    divides = fits and nodes[0].spec.result.shape[ROWS] % ways == 0
    return nodes if divides and value not in program.returns else ()


def _dropped(spec: OpCall) -> int:
    """Return the number of rows that a slice drops at their end; 0 for any other call."""
    if spec.target != "aten.slice.Tensor" or spec["dim"] % len(spec["self"].shape) != ROWS:
        return 0
    return 0 if spec["start"] or spec["step"] != 1 else spec["self"].shape[ROWS] - spec.result.shape[ROWS]


def _added(spec: OpCall) -> int:
    """Return the number of zero rows that a call adds behind the rows; 0 for any other call."""
    if spec.target != "aten.constant_pad_nd" or spec["value"] != 0:
        return 0
    behind = (0, 0) * (len(spec["self"].shape) - 1 - ROWS)
    more = spec["pad"][-1]
    return more if spec["pad"] == (*behind, 0, more) and more > 0 else 0
