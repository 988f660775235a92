"""``torch-share``: equal calls become one, dead ones go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.passmanager import PassManager

from shardc.dialects.rules.rule import load_rules
from shardc.passes.base import Pass


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
