"""``torch-lift-reshapes``: splits dims before it merges others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.rules.rule import Rule
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, find_function, read_program

_RESHAPES = ("aten.view", "aten._unsafe_view", "aten.reshape")
_NAMES = {f"torch.{target}" for target in _RESHAPES}


@dataclass(frozen=True)
class TorchLiftReshapes(Pass):
    """``reshape([b, h * p, w], [b * h, p, w])`` becomes two reshapes, by way of ``[b, h, p, w]``.

    Vision models cut images into windows so. The first reshape only splits dims, the second only merges some.
    A split of the rows ``h * p`` becomes one of ``h``, and then of the merged dim, if it is stored in blocks.
    """

    name: ClassVar[str] = "torch-lift-reshapes"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        ops = [] if function is None else function.regions[0].blocks[0].operations
        program = read_program(module) if any(o.operation.name in _NAMES for o in ops) else None
        if program is None:
            return
        builder = CallBuilder(program.block)
        for node in program.nodes:
            if node.spec.target in _RESHAPES and node.known and _splits_and_merges(node.rule):
                _lift(builder, node)


def _splits_and_merges(rule: Rule) -> bool:
    """Return whether a part of a split dim is merged with another dim."""
    (source,), (target,) = rule.operands, rule.results
    if rule.replicate:
        return False
    split = set(chain.from_iterable(dim for dim in source if len(dim) > 1))
    merged = [dim for dim in target if len(dim) > 1]
    return any(split & set(dim) and dim not in source for dim in merged)


def _lift(builder: CallBuilder, node: Node) -> None:
    op, rule, source = node.op, node.rule, node.spec.tensors[0]
    (dims,) = rule.operands
    apart = tuple(rule.sizes[f] for dim in dims for f in dim)
    marks = attributes_of(op, "dist.phase", "dist.module")
    call = partial(builder.call, loc=op.location, ip=ir.InsertionPoint(op), attributes=marks)
    made = call(node.spec.target, (op.operands[0], apart), [source.with_shape(apart)])
    op.operands[0] = made.results[0]
