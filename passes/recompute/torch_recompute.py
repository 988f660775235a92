"""``torch-recompute``: the backward of modules computes again what it reads of their forward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.passes.recompute import NeverCalled
from shardc.dialects.aten.call import is_constant
from shardc.passes.manager.attributes import drop_attributes, phase_of
from shardc.passes.manager.base import Pass
from shardc.passes.manager.copy_ops import reads
from shardc.passes.manager.program import find_function
from shardc.passes.recompute.clones import Clones
from shardc.passes.recompute.policies import PHASE, is_kept

MODULE = "dist.module"
"""On an op of the forward: the call of a module that is to be recomputed, such as ``layers.3``."""


@dataclass(frozen=True)
class TorchRecompute(Pass):
    """Clones forward ops of marked modules into the backward, in front of the first op that reads what they
    make.

    Ops are marked by the attribute ``dist.module``, whose text is the same for the ops of one call of a
    module; it is taken off. What goes into a call and what comes out of it is kept. Of the rest, ``policy``
    keeps nothing (``full``), or what products, convolutions and attention make (``selective``). Nothing is
    cloned that no backward op needs, such as the last product of a layer. Random numbers depend on the
    step's seed and on the number of their op, which clones share. Raises NeverCalled where no op is marked.

    Chen et al. 2016 (full), Korthikanti et al. 2022 (selective; there attention runs again).
    """

    name: ClassVar[str] = "torch-recompute"
    policy: str = "full"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        if function is None:
            return
        *ops, end = [o.operation for o in function.regions[0].blocks[0].operations]
        ops = [op for op in ops if not is_constant(op)]
        if not any(MODULE in op.attributes for op in ops):
            raise NeverCalled()
        inside = _made_inside(ops, [*end.operands])
        again = {v for v in inside if self.policy == "full" or not is_kept(v.owner.operation)}
        clones = Clones(again.__contains__)
        for op in ops:
            if phase_of(op) in ("backward", PHASE):
                clones.read_clones(op)
        for op in function.regions[0].blocks[0].operations:
            drop_attributes(op.operation, MODULE)


def _made_inside(ops: Iterable[ir.Operation], returned: Iterable[ir.Value]) -> set[ir.Value]:
    """What marked calls make and no op of the forward outside of the same call reads."""
    found: dict[ir.Value, str] = {}
    outputs = set(returned)
    for op in ops:
        if phase_of(op) != "forward":
            continue
        call = call_of(op)
        outputs.update(value for value in reads(op) if found.get(value, call) != call)
        if call:
            found.update(dict.fromkeys(op.results, call))
    return found.keys() - outputs


def call_of(op: ir.Operation) -> str:
    """The call of a marked module that an op is of, or ""."""
    return op.attributes[MODULE].value if MODULE in op.attributes else ""
