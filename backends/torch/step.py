"""One op of a block as the program has it."""

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
    """One op that becomes lines of the program, with the values that it reads and makes.

    ``members``: the calls of one kernel that this is all of, if it is more than one.
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
        """How often it reads each operand."""
        return Counter(self.operands)

    @property
    def starts(self) -> bool:
        """Whether it only starts: its result is a handle to be waited for."""
        return self.name in COLLECTIVES


def size_bytes(type_: TensorType | None) -> float:
    """The bytes of a value: 0 for an integer and an absent result, infinite if known only at run time."""
    if type_ is None:
        return 0
    return type_.size_bytes if type_.is_static else math.inf


def yielded(block: ir.Block) -> list[ir.Value]:
    """The operands of a block's terminator."""
    return list(block.operations[-1].operation.operands)
