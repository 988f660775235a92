"""Products that devices would repeat, found by a trial of the passes that follow, on a copy of the module."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.cost.work import flops
from shardc.diagnostics.base import collect_remarks
from shardc.dialects.aten.call import is_constant
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.rules.rule import factor_axes
from shardc.passes.manager.attributes import i64
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.manager.program import Node, Program, copy_module, find_function, read_program

NUMBER = "dist.product"
"""Attribute of a product in the copy: its node number in the original program."""
TRIAL = "split,dist-propagate"


@dataclass(frozen=True)
class Repeated:
    """A product of a program, and the axes over which no factor of it is split.

    ``ways``: number of blocks of each dim of its result, over all axes.
    """

    node: int
    axes: tuple[str, ...]
    ways: tuple[int, ...]
    flops: float


def find_repeated(program: Program, mesh: Mesh, axes: tuple[str, ...]) -> tuple[list[Repeated], float]:
    """Return the products that some of ``axes`` do not split, and the operations of all products.

    Products that the trial rewrites to other calls are left out.
    """
    work = {number: flops(node.spec) for number, node in enumerate(program.nodes)}
    work = {number: count for number, count in work.items() if count}
    trial = _numbered_copy(program, work)
    with collect_remarks():  # the passes make their remarks again on the program itself
        run(trial, build(TRIAL), verify_each=False)
        tried = read_program(trial)
    assert tried is not None
    codec, found = ShardingCodec(trial.context, mesh), list[Repeated]()
    layouts = _Layouts(tried, codec)
    for node in tried.nodes:
        if NUMBER not in node.op.attributes:
            continue
        number = ir.IntegerAttr(node.op.attributes[NUMBER]).value
        idle = tuple(axis for axis in axes if layouts.ways(node, axis) < mesh.size(axis))
        if idle and len(node.spec.result.shape) == len(program.types[program.nodes[number].results[0]].shape):
            made = layouts.of(node.results[0])
            ways = tuple(made.ways(d) for d in range(len(made.dims)))
            found.append(Repeated(number, idle, ways, work[number]))
    return sorted(found, key=lambda r: r.node), sum(work.values())


def _numbered_copy(program: Program, products: Collection[int]) -> ir.Module:
    """Return a copy of the program's module in which each of ``products`` has its node number."""
    copy = copy_module(program.module)
    function = find_function(copy)
    assert function is not None
    *ops, _ = [op.operation for op in function.regions[0].blocks[0].operations]
    for number, op in enumerate(op for op in ops if not is_constant(op)):
        if number in products:
            op.attributes[NUMBER] = i64(number, copy.context)
    return copy


class _Layouts:
    """The shardings that a trial gave values."""

    def __init__(self, program: Program, codec: ShardingCodec) -> None:
        self._program, self._codec = program, codec

    def of(self, value: int) -> Sharding:
        program = self._program
        producer = program.producer[value]
        if producer < 0:
            return program.annotated(program.arguments.index(value), self._codec)
        node = program.nodes[producer]
        return self._codec.read(node.op.attributes["dist.shardings"][node.results.index(value)])

    def ways(self, node: Node, axis: str) -> int:
        """Return how many ways an axis splits the factors of a call, contracted ones among them."""
        rule, parts = node.rule, set[Axis]()
        for dims, value in zip((*rule.operands, *rule.results), node.values, strict=True):
            cut = factor_axes(dims, self.of(value), rule.sizes)
            parts |= {a for f, axes in cut.items() if f not in rule.replicate for a in axes if a.name == axis}
        return prod(part.size for part in parts)
