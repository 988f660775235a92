"""Inlining of collectives between actions into the ranks' functions.

Each starts at the position of its action; the first use of its result waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_mlir import ir

from shardc.dialects.dist.tuples import packed, unpacked
from shardc.dialects.pipe.action import COLLECTIVE_KINDS
from shardc.dialects.pipe.action_op import ActionOp, find_stage
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.stage import StageOp
from shardc.passes.manager.copy_ops import Copier
from shardc.passes.manager.program import copy_module
from shardc.passes.optimize.dist_combine import sink_views


def inlined(module: ir.Module) -> ir.Module:
    """Return a copy with inlined collectives, or ``module`` itself if it has none."""
    if not any(True for _ in _stages(module)):
        return module
    made = copy_module(module)
    inline_collectives(made)
    return made


def inline_collectives(module: ir.Module) -> None:
    """Inline the collectives of ``module`` in place."""
    stages = list(_stages(module))
    names = {op.attributes["sym_name"].value for op in stages}
    for function in rank_functions(module):
        for op in [o.operation for o in function.regions[0].blocks[0].operations]:
            if op.name == ActionOp.OPERATION_NAME and op.attributes["stage"].value in names:
                _inline(op)
        sink_views(function.regions[0].blocks[0])
    for op in stages:
        op.erase()


def _stages(module: ir.Module) -> Iterator[ir.Operation]:
    for op in (view.operation for view in module.body.operations):
        if op.name == StageOp.OPERATION_NAME and op.attributes["kind"].value in COLLECTIVE_KINDS:
            yield op


def _inline(op: ir.Operation) -> None:
    stage = find_stage(op, op.attributes["stage"].value)
    assert stage is not None
    block = stage.regions[0].blocks[0]
    copier = Copier(ir.InsertionPoint(op), zip(block.arguments, packed(list(op.operands)), strict=True))
    *ops, end = (o.operation for o in block.operations)
    for inner in ops:
        if inner.name != "torch.prim.TupleConstruct":
            copier.copy(inner)
    made = [copier.values[v] for v in packed(list(end.operands))]
    results = unpacked(list(op.results))
    for old, new in zip(results, made, strict=True):
        old.replace_all_uses_with(new)
    for user in [use.owner for result in op.results for use in result.uses]:
        user.operation.erase()
    op.erase()
