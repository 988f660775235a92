"""``torch-lift-repeats``: gives the copies of a repeated dim a dim of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, find_function, read_program

_REPEAT = "aten.repeat"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class TorchLiftRepeats(Pass):
    """``repeat([n, h], [e, 1])`` becomes ``reshape(expand([1, n, h], [e, n, h]), [e * n, h])``.

    Experts that all read all rows repeat them so. In the dim ``e * n`` the copies are more major than the
    rows, so a sharding of that dim cannot express a split of the rows. A repeat of dims of size 1 stays.
    """

    name: ClassVar[str] = "torch-lift-repeats"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        ops = [] if function is None else function.regions[0].blocks[0].operations
        program = read_program(module) if any(o.operation.name == f"torch.{_REPEAT}" for o in ops) else None
        if program is None:
            return
        builder = CallBuilder(program.block)
        for node in program.nodes:
            if node.spec.target == _REPEAT and _copies_rows(node.spec):
                _lift(builder, node)


def _copies_rows(spec: OpCall) -> bool:
    """Return whether a repeat merges copies with a dim of more than one element."""
    shape = spec["self"].shape
    return any(n > 1 and copies > 1 for n, copies in _apart(shape, spec["repeats"])[0])


def _apart(shape: Shape, repeats: Shape) -> tuple[list[tuple[int, int]], Shape]:
    """Return each dim's size with its number of copies, and the numbers of copies as new dims."""
    new = len(repeats) - len(shape)
    return list(zip(shape, repeats[new:], strict=True)), repeats[:new]


def _lift(builder: CallBuilder, node: Node) -> None:
    op, source, result = node.op, node.spec["self"], node.spec.result
    dims, leading = _apart(source.shape, node.spec["repeats"])
    single = (*(1 for _ in leading), *(d for n, _ in dims for d in (1, n)))
    copied = (*leading, *(d for n, copies in dims for d in (copies, n)))
    marks = attributes_of(op, "dist.phase", "dist.module")
    call = partial(builder.call, loc=op.location, ip=ir.InsertionPoint(op), attributes=marks)
    made = call("aten.reshape", (op.operands[0], single), [source.with_shape(single)])
    made = call("aten.expand", (made.results[0], copied, False), [source.with_shape(copied)])
    made = call("aten.reshape", (made.results[0], result.shape), [result])
    copy_attributes(op, made)
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()
