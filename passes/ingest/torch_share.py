"""``torch-share``: merges equal calls and erases calls without readers."""

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
"""Attribute with a unique number, which keeps a call from being merged with equal calls."""


@dataclass(frozen=True)
class TorchShare(Pass):
    """Runs MLIR's ``cse`` with knowledge of which ATen ops are pure: those with a sharding rule.

    Torch-MLIR does not declare effects of ATen ops, so ``cse`` alone merges nothing. Ops of shardc's dialects
    and ``torch.operator`` are not merged. Equal views of a value become one value, so that its reshards are
    shared, too.
    """

    name: ClassVar[str] = "torch-share"
    creations: bool = True
    """True to merge creations, that is, tensors made from constants only.

    Before layouts are chosen they stay separate: equal creations may belong to different dims of the program,
    such as positions in a batch and in a sequence, and a merged tensor has one layout for all users.
    ``dist-partition`` merges those with equal layouts.
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
    """Return whether the op was kept separate before layouts were chosen."""
    return APART in op.attributes


def _keep_creations_apart(module: ir.Module) -> None:
    """Number all creations, so that no two are equal."""
    function = find_function(module)
    ops = list(function.regions[0].blocks[0].operations) if function is not None else []
    for number, op in enumerate([o.operation for o in ops if _is_creation(o.operation)]):
        op.attributes[APART] = i64(number, module.context)


def _is_creation(op: ir.Operation) -> bool:
    """Return whether an op reads only constants and makes a tensor with dims."""
    if not all(isinstance(v, ir.OpResult) and is_constant(v.owner.operation) for v in op.operands):
        return False
    if len(op.results) != 1 or is_constant(op) or not _is_pure(op):
        return False
    type_ = read_type(op.results[0].type)
    return type_ is not None and len(type_.shape) > 0


def drop_unread(block: ir.Block) -> None:
    """Erase pure ops without readers, last first; ``cse`` visits each op only once, before its readers
    vanish.
    """
    for op in reversed([o.operation for o in block.operations]):
        if _is_pure(op) and not any(True for result in op.results for _ in result.uses):
            op.erase()


def unread(block: ir.Block) -> set[ir.Value]:
    """Return the results of the ops that :func:`drop_unread` would erase."""
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
