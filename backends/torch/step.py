"""``Step``: one op of a block in the emitted program."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir

from shardc.dialects.aten.call import Call
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.collectives.names import COLLECTIVES
from shardc.dialects.dist.regions.loop_values import LoopValues


@dataclass
class Step:
    """Op that becomes lines of the program, with the values that it reads and computes.

    ``members``: the joined calls of one kernel, if there are several.
    """

    op: ir.Operation
    name: str
    call: Call | None
    operands: list[ir.Value]
    results: list[ir.Value]
    loop: LoopValues | None = None
    members: tuple[Step, ...] = ()

    @cached_property
    def reads(self) -> Counter[ir.Value]:
        """Count of reads of each operand."""
        return Counter(self.operands)

    @property
    def starts(self) -> bool:
        """True if the step only starts a collective, whose result is a handle to wait for."""
        return self.name in COLLECTIVES


def size_bytes(type_: TensorType | None) -> float:
    """Return the bytes of a value: 0 for an integer or absent result, infinite if known only at run time."""
    if type_ is None:
        return 0
    return type_.size_bytes if type_.is_static else math.inf


def yielded(block: ir.Block) -> list[ir.Value]:
    """Return the operands of a block's terminator."""
    return list(block.operations[-1].operation.operands)
