"""Keys and values of a padded sequence: the slice that attention reads, and the pad of their gradients.

A sequence of 38 rows over 4 devices is stored as 40, of which attention reads 38 keys. Devices divide 40 rows
and not 38, so all-to-alls exchange the 40, before the slice and after the pad.
"""

from __future__ import annotations

from shardc.dialects.aten.call import OpCall
from shardc.passes.manager.program import Node, Program

HEADS, ROWS = 1, 2


def trim_before(program: Program, value: int) -> Node | None:
    """Return the slice of the first rows that makes ``value``, or None."""
    producer = program.producer[value]
    node = program.nodes[producer] if producer >= 0 else None
    return node if node is not None and _takes_first(node.spec) else None


def pads_after(program: Program, value: int) -> tuple[Node, ...]:
    """Return the readers of ``value`` if all of them add the same number of zero rows at its end, else ()."""
    nodes = tuple(program.nodes[n] for n in program.users[value])
    added = {_added(node.spec) for node in nodes}
    return nodes if len(added) == 1 and 0 not in added and value not in program.returns else ()


def _takes_first(spec: OpCall) -> bool:
    if spec.target != "aten.slice.Tensor" or spec["dim"] % len(spec["self"].shape) != ROWS:
        return False
    return not spec["start"] and spec["step"] == 1


def _added(spec: OpCall) -> int:
    """Return the number of zero rows that a call adds behind the rows; 0 for any other call."""
    if spec.target != "aten.constant_pad_nd" or spec["value"] != 0:
        return 0
    behind = (0, 0) * (len(spec["self"].shape) - 1 - ROWS)
    more = spec["pad"][-1]
    return more if spec["pad"] == (*behind, 0, more) and more > 0 else 0
