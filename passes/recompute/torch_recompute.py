"""``torch-recompute``: the backward of marked modules recomputes their forward."""

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
"""Attribute of a forward op: the call of a module to recompute, such as ``layers.3``."""


@dataclass(frozen=True)
class TorchRecompute(Pass):
    """Clones forward ops of marked modules into the backward, before the first op that reads their results.

    The attribute ``dist.module`` marks ops; its text is the same for all ops of one call of a module, and the
    pass removes it. Inputs and outputs of a call are kept. Of the other values, ``policy`` keeps none
    (``full``), or the results of products, convolutions and attention (``selective``). Ops that no backward
    op needs, such as the last product of a layer, are not cloned. Random numbers depend on the step's seed
    and on the number of their op, which clones share. Raises NeverCalled if no op is marked. Chen et al. 2016
    (full), Korthikanti et al. 2022 (selective; there attention runs again).
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
        drop_modules(function)


def drop_modules(function: ir.Operation) -> None:
    """Remove the marks of modules, so that nothing of a step is recomputed."""
    for op in function.regions[0].blocks[0].operations:
        drop_attributes(op.operation, MODULE)


def _made_inside(ops: Iterable[ir.Operation], returned: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the results of marked calls that no forward op outside the same call reads."""
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
    """Return the call of a marked module that an op belongs to, or ""."""
    return op.attributes[MODULE].value if MODULE in op.attributes else ""
