"""Result of a search in a saved plan, which a later compile applies without a search."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from shardc.diagnostics.passes.search import CutsDoNotFit
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.manager.attributes import edge_attributes
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.given_cuts import CUTS, OVER, PASSES
from shardc.passes.plan.dist_constrain import OPERATOR
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import WHOLE, Layout, divides
from shardc.passes.search.ways import Choice, Shapes, Way, WaysOf

Row = tuple[Choice, ...]
"""Choice of each axis in a call: the factor that it splits, the linear set that stays partial, or nothing."""


@dataclass(frozen=True)
class SavedCuts:
    """The choice of each axis in each call, and the layout of each argument.

    ``program`` is the :func:`digest` of the step that was searched, before its plan was applied.
    """

    program: str
    calls: tuple[Row, ...]
    arguments: tuple[Layout, ...]

    @property
    def json(self) -> dict[str, object]:
        """The result as plain data: distinct rows, and for each call the number of its row."""
        kinds = list(dict.fromkeys(self.calls))
        number = {row: place for place, row in enumerate(kinds)}
        return {
            "program": self.program,
            "kinds": [list(row) for row in kinds],
            "calls": [number[row] for row in self.calls],
            "arguments": [list(layout) for layout in self.arguments],
        }

    @staticmethod
    def of_json(data: Mapping[str, Any]) -> SavedCuts:
        """Read the data of :attr:`json`. Raises KeyError, TypeError, IndexError."""
        kinds = [tuple(row) for row in data["kinds"]]
        calls = tuple(kinds[number] for number in data["calls"])
        return SavedCuts(str(data["program"]), calls, tuple(map(tuple, data["arguments"])))

    def read(self, program: Program, mesh: Mesh, pipeline: str) -> tuple[list[Way], list[Layout]]:
        """Return a way for each call and a layout for each argument. Raises CutsDoNotFit."""
        axes = SearchAxes.of(mesh, pipeline)
        counts = len(program.nodes), len(program.arguments)
        if counts != (len(self.calls), len(self.arguments)):
            raise CutsDoNotFit(problem=f"they are for {len(self.calls):,} calls, and it has {counts[0]:,}")
        ways_of = WaysOf(axes)
        ways = [_way(ways_of, program, *pair) for pair in zip(program.nodes, self.calls, strict=True)]
        for value, layout in zip(program.arguments, self.arguments, strict=True):
            shape = program.types[value].shape
            is_one = len(layout) == len(axes.axes) and all(WHOLE <= dim < len(shape) for dim in layout)
            if not is_one or not divides(layout, shape, axes.sizes):
                problem = f"an argument of shape {list(shape)} can't be sharded as {list(layout)}"
                raise CutsDoNotFit(problem=problem)
        return ways, list(self.arguments)


def digest(program: Program) -> str:
    """Return a hash of a step's calls, in order: operators, rules, sizes, and the user's constraints."""
    found = hashlib.sha256()
    for node in program.nodes:
        rule = node.rule
        shapes = [program.types[value].shape for value in (*node.operands, *node.results)]
        linear = [sorted(group) for group in rule.linear]
        asked = node.spec["layout"] if node.spec.target == OPERATOR else ""
        parts = (
            node.op.name,
            node.spec.target,
            asked,
            rule.operands,
            rule.results,
            sorted(rule.sizes.items()),
            linear,
            shapes,
        )
        found.update(repr((*parts, node.operands, node.results)).encode())
    return found.hexdigest()


def cuts_in(program: Program, mesh: Mesh, pipeline: str, of: str) -> SavedCuts:
    """Read the result that a search wrote to a step. ``of`` is the :func:`digest` of the step before."""
    codec = ShardingCodec(program.module.context, mesh)
    names = [axis.name for axis in SearchAxes.of(mesh, pipeline).axes]
    calls = tuple(_row(node.op, codec, names) for node in program.nodes)
    layouts: list[Layout] = []
    for position in range(len(program.arguments)):
        dims = codec.read(edge_attributes(program.function, "arg_attrs", position)["dist.sharding"]).dims
        place = {axis.name: number for number, dim in enumerate(dims) for axis in dim}
        layouts.append(tuple(place.get(name, WHOLE) for name in names))
    return SavedCuts(of, calls, tuple(layouts))


def _row(op: ir.Operation, codec: ShardingCodec, names: list[str]) -> Row:
    does: dict[str, Choice] = {}
    for entry in ir.DictAttr(op.attributes[CUTS]):
        does |= {axis.name: entry.name for axis in codec.read_axes(entry.attr)}
    if PASSES in op.attributes:
        number = ir.IntegerAttr(op.attributes[PASSES]).value
        does |= {axis.name: number for axis in codec.read_axes(op.attributes[OVER])}
    return tuple(does.get(name) for name in names)


def _way(ways_of: WaysOf, program: Program, node: Node, row: Row) -> Way:
    operands, results = (tuple(program.types[v].shape for v in vs) for vs in (node.operands, node.results))
    found = ways_of.way(node.rule, Shapes(operands, results), row)
    if found is None:
        raise CutsDoNotFit(
            problem=f"{node.op.name} of {[*map(list, operands)]} can't be sharded as {list(row)}"
        )
    return found
