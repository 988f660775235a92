"""``torch-share``: equal calls become one, those that nobody reads go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.passmanager import PassManager

from shardc.dialects.aten.call import is_constant, target_name
from shardc.dialects.rules.rule import load_rules
from shardc.passes.base import Pass
from shardc.passes.program import find_function


@dataclass(frozen=True)
class TorchShare(Pass):
    """MLIR's ``cse``, told which ATen ops are pure: those with a sharding rule, which are functions of their arguments.

    Torch-MLIR leaves ATen ops without effects declared, so that ``cse`` alone merges nothing. Ops of ours and
    ``torch.operator`` stay as they are. A value seen by several users through equal views is one value afterwards,
    so that its reshards are shared too.
    """

    name: ClassVar[str] = "torch-share"

    def run(self, module: ir.Module) -> None:
        context = module.context
        with context:
            for target in load_rules():
                name = f"torch.{target}"
                if target.startswith(("aten.", "prims.")) and context.is_registered_operation(name):
                    ext.Pure.attach(name)
            PassManager.parse("builtin.module(cse)").run(module.operation)
        function = find_function(module)
        if function is not None:
            drop_unread(function.regions[0].blocks[0])


def drop_unread(block: ir.Block) -> None:
    """Erase what nobody reads, last first: ``cse`` looks at each op once, before its readers go."""
    for op in reversed([o.operation for o in block.operations]):
        if _is_pure(op) and not any(True for result in op.results for _ in result.uses):
            op.erase()


def unread(block: ir.Block) -> set[ir.Value]:
    """The results of the ops that :func:`drop_unread` erases."""
    found: set[ir.Value] = set()
    for op in reversed([o.operation for o in block.operations]):
        if _is_pure(op) and all(_is_of(found, use.owner) for result in op.results for use in result.uses):
            found.update(op.results)
    return found


def _is_of(found: set[ir.Value], op: ir.Operation) -> bool:
    return len(op.results) > 0 and op.results[0] in found


def _is_pure(op: ir.Operation) -> bool:
    return is_constant(op) or (op.name.startswith("torch.") and target_name(op) in load_rules())
