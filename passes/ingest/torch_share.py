"""``torch-share``: equal calls become one, those that nobody reads go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.passmanager import PassManager

from shardc.dialects.aten.call import is_constant, target_name
from shardc.dialects.aten.types import read_type
from shardc.dialects.rules.rule import load_rules
from shardc.passes.manager.attributes import i64
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import find_function

APART = "dist.apart"
"""The number of a call that is not shared although others are equal."""


@dataclass(frozen=True)
class TorchShare(Pass):
    """MLIR's ``cse``, told which ATen ops are pure: those with a sharding rule, functions of their arguments.

    Torch-MLIR leaves ATen ops without effects declared, so that ``cse`` alone merges nothing. Ops of ours and
    ``torch.operator`` stay as they are. A value seen by several users through equal views is one value
    afterwards, so that its reshards are shared too.
    """

    name: ClassVar[str] = "torch-share"
    creations: bool = True
    """Also tensors made of numbers alone. Before a layout is chosen they stay apart: equal ones may stand for
    other dims of the program, as positions in a batch and in a sequence do, and one tensor has one layout for
    all its users. ``dist-partition`` shares those that came to lie alike.
    """

    def run(self, module: ir.Module) -> None:
        context = module.context
        if not self.creations:
            _keep_creations_apart(module)
        with context:
            for target in load_rules():
                name = f"torch.{target}"
                if target.startswith(("aten.", "prims.")) and context.is_registered_operation(name):
                    ext.Pure.attach(name)
            PassManager.parse("builtin.module(cse)").run(module.operation)
        function = find_function(module)
        if function is not None:
            drop_unread(function.regions[0].blocks[0])


def is_apart(op: ir.Operation) -> bool:
    """Whether the op was kept from being shared before layouts were chosen."""
    return APART in op.attributes


def _keep_creations_apart(module: ir.Module) -> None:
    """Numbers the calls that read no tensor and make one with dims, so that no two are equal."""
    function = find_function(module)
    ops = list(function.regions[0].blocks[0].operations) if function is not None else []
    for number, op in enumerate([o.operation for o in ops if _is_creation(o.operation)]):
        op.attributes[APART] = i64(number, module.context)


def _is_creation(op: ir.Operation) -> bool:
    """Whether only constants go in and a tensor with dims comes out."""
    if not all(isinstance(v, ir.OpResult) and is_constant(v.owner.operation) for v in op.operands):
        return False
    if len(op.results) != 1 or is_constant(op) or not _is_pure(op):
        return False
    type_ = read_type(op.results[0].type)
    return type_ is not None and len(type_.shape) > 0


def drop_unread(block: ir.Block) -> None:
    """Erase what nobody reads, last first: ``cse`` looks at each op once, before its readers go."""
    for op in reversed([o.operation for o in block.operations]):
        if _is_pure(op) and not any(True for result in op.results for _ in result.uses):
            op.erase()


def unread(block: ir.Block) -> set[ir.Value]:
    """The results of the ops that :func:`drop_unread` erases."""
    found: set[ir.Value] = set()
    for op in reversed([o.operation for o in block.operations]):
        readers = [use.owner for result in op.results for use in result.uses]
        if _is_pure(op) and all(len(r.results) > 0 and r.results[0] in found for r in readers):
            found.update(op.results)
    return found


def _is_pure(op: ir.Operation) -> bool:
    if is_constant(op) or op.name == "dist.constraint":
        return True
    return op.name.startswith("torch.") and target_name(op) in load_rules()
