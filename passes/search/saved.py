"""Result of a search in a saved plan, which a later compile applies without a search."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from shardc.diagnostics.passes.search import CutsDoNotFit
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.attributes import edge_attributes
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.given_cuts import CUTS, OVER, PASSES, read_kept
from shardc.passes.plan.dist_constrain import OPERATOR
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.chosen import Chosen, Kept
from shardc.passes.search.layout import WHOLE, Layout, divides
from shardc.passes.search.ways import Choice, Shapes, Way, WaysOf

Row = tuple[Choice, ...]
"""Choice of each axis in a call: the factor that it splits, the linear set that stays partial, or nothing."""


@dataclass(frozen=True)
class SavedCuts:
    """The choice of each axis in each call, the layout of each argument, and what calls keep in shards.

    ``program`` is the :func:`digest` of the step that was searched, before its plan was applied.
    """

    program: str
    calls: tuple[Row, ...]
    arguments: tuple[Layout, ...]
    kept: tuple[Kept, ...] = ()

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
            "kept": [[call, *pair] for call, pairs in enumerate(self.kept) for pair in pairs],
        }

    @staticmethod
    def of_json(data: Mapping[str, Any]) -> SavedCuts:
        """Read the data of :attr:`json`. Raises KeyError, TypeError, IndexError."""
        kinds = [tuple(row) for row in data["kinds"]]
        calls = tuple(kinds[number] for number in data["calls"])
        kept: list[Kept] = [()] * len(calls)
        for call, result, layout in data.get("kept", ()):
            kept[call] = (*kept[call], (int(result), tuple(layout)))
        return SavedCuts(str(data["program"]), calls, tuple(map(tuple, data["arguments"])), tuple(kept))

    def read(self, program: Program, mesh: Mesh, pipeline: str) -> Chosen:
        """Return what was chosen for each call and argument. Raises CutsDoNotFit."""
        axes = SearchAxes.of(mesh, pipeline)
        counts = len(program.nodes), len(program.arguments)
        if counts != (len(self.calls), len(self.arguments)):
            raise CutsDoNotFit(problem=f"they are for {len(self.calls):,} calls, and it has {counts[0]:,}")
        ways_of = WaysOf(axes)
        ways = [_way(ways_of, program, *pair) for pair in zip(program.nodes, self.calls, strict=True)]
        for value, layout in zip(program.arguments, self.arguments, strict=True):
            _expect(layout, program.types[value].shape, axes, "an argument")
        kept = list(self.kept or [()] * len(ways))
        for node, pairs in zip(program.nodes, kept, strict=True):
            for result, layout in pairs:
                if not 0 <= result < len(node.results):
                    raise CutsDoNotFit(problem=f"{node.op.name} has no result {result}")
                _expect(layout, program.types[node.results[result]].shape, axes, "a result")
        return Chosen(ways, list(self.arguments), kept)


def _expect(layout: Layout, shape: tuple[int, ...], axes: SearchAxes, what: str) -> None:
    """Check that a tensor can have a layout. Raises CutsDoNotFit."""
    is_one = len(layout) == len(axes.axes) and all(WHOLE <= dim < len(shape) for dim in layout)
    if not is_one or not divides(layout, shape, axes.sizes):
        raise CutsDoNotFit(problem=f"{what} of shape {list(shape)} can't be sharded as {list(layout)}")


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
    rows = [edge_attributes(program.function, "arg_attrs", at) for at in range(len(program.arguments))]
    layouts = tuple(_layout(codec.read(row["dist.sharding"]), names) for row in rows)
    kept = tuple(_kept(node, codec, names) for node in program.nodes)
    return SavedCuts(of, calls, layouts, kept)


def _kept(node: Node, codec: ShardingCodec, names: list[str]) -> Kept:
    found = read_kept(node, codec)
    return tuple((node.results.index(value), _layout(sharding, names)) for value, sharding in found.items())


def _layout(sharding: Sharding, names: list[str]) -> Layout:
    place = {axis.name: number for number, dim in enumerate(sharding.dims) for axis in dim}
    return tuple(place.get(name, WHOLE) for name in names)


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
