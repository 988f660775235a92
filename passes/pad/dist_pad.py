"""``dist-pad``: pads dims that do not divide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.base import remark
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.manager.attributes import attributes_of, copy_attributes, edge_attributes, move_attributes
from shardc.passes.manager.program import Node, Program, new_function
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.pad.call import padded_rule, padded_types
from shardc.passes.pad.pad_values import PadValues, made_values, needed_numbers, worth_filling
from shardc.passes.pad.seeds import find_seeds
from shardc.passes.pad.span import Padding, Span, no_padding, of_dim, padded_shape, padded_size
from shardc.passes.pad.spread import FactorPadding, PaddingSpread
from shardc.passes.pad.writer import PadWriter
from shardc.passes.partition.local_call import MlirLocal


@dataclass(frozen=True)
class DistPad(ReadingPass):
    """Pads dims that do not divide into the plan's equal blocks, and all dims that share a factor with them.

    A batch of 3 over 2 devices becomes one of 4 in the whole step, so that after this pass all dims divide.
    Padding may hold any value unless a reduction reads it; then it holds the reduction's neutral element.
    Padding of state holds zeros before and after the step. ``dist.padded`` of an argument or result is its
    padded shape, ``dist.global_type`` its true type. The pass does nothing if all dims divide.
    """

    name: ClassVar[str] = "dist-pad"

    def apply(self, reading: Reading) -> bool:
        module, mesh = reading.module, read_mesh(reading.module)
        program = reading.program if mesh is not None else None
        if mesh is None or program is None:
            return False
        codec = ShardingCodec(module.context, mesh)
        seeds = find_seeds(program, codec, mesh)
        if seeds:
            _report(program, seeds)
            with module.context, ir.Location.unknown():
                _Padder(program, PaddingSpread(program, seeds), codec).run()
        return bool(seeds)


def _report(program: Program, seeds: Mapping[int, Padding]) -> None:
    """Emit one remark for each padded size."""
    named: dict[tuple[int, int], list[str]] = {}
    for (role, name), value in zip(program.argument_keys(), program.arguments, strict=True):
        for size, spans in zip(program.types[value].shape, seeds.get(value, ()), strict=False):
            if spans:
                named.setdefault((size, padded_size(size, spans)), []).append(
                    f"input {name}" if role == "input" else name
                )
    for (size, padded), names in named.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        computed = f"dims of size {size} are padded to {padded}, which divides evenly"
        remark("Padded", f"{computed}: {', '.join(names[:3])}{more}")


class _Padder:
    """Rebuilds the step on padded shapes. ``_values`` maps the number of an old value to the new value."""

    def __init__(self, program: Program, spread: PaddingSpread, codec: ShardingCodec) -> None:
        self._program, self._spread, self._codec = program, spread, codec
        # State keeps its padding; other results are returned without padding.
        self._results = [
            no_padding(len(program.types[v].shape)) if argument is None else spread.padding(argument)
            for v, argument in zip(program.returns, program.state_of_results(), strict=True)
        ]
        block = self._new_function()
        self._builder = CallBuilder(block)
        self._writer = PadWriter(block, self._builder)
        self._ip = ir.InsertionPoint(block)
        self._values: list[ir.Value] = list(block.arguments)
        self._pad_values: dict[ir.Value, PadValues] = {
            new: _zeros(spread.padding(value))
            for value, new in zip(program.arguments, block.arguments, strict=True)
        }

    def run(self) -> None:
        program = self._program
        for number, node in enumerate(program.nodes):
            self._values += self._call(number, node)
        returned = [self._return(i, v) for i, v in enumerate(program.returns)]
        ir.Operation.create("func.return", [], returned, loc=program.terminator.location, ip=self._ip)
        program.function.erase()

    def _new_function(self) -> ir.Block:
        program = self._program
        inputs = [self._padded(v, self._spread.padding(v)) for v in program.arguments]
        outputs = [self._padded(v, p) for v, p in zip(program.returns, self._results, strict=True)]
        changed = {
            "arg_attrs": self._edges("arg_attrs", program.arguments, inputs),
            "res_attrs": self._edges("res_attrs", program.returns, outputs),
        }
        return new_function(program, list(map(write_type, inputs)), list(map(write_type, outputs)), changed)

    def _padded(self, value: int, padding: Padding) -> TensorType:
        type_ = self._program.types[value]
        return type_.with_shape(padded_shape(type_.shape, padding))

    def _edges(self, which: str, values: list[int], types: list[TensorType]) -> ir.ArrayAttr:
        """Return the attributes of arguments or results, with the true types of padded ones."""
        program, rows = self._program, []
        for position, (value, type_) in enumerate(zip(values, types, strict=True)):
            row = edge_attributes(program.function, which, position)
            if type_ != program.types[value]:
                row["dist.global_type"] = ir.TypeAttr.get(program.values[value].type)
                row["dist.padded"] = ir.DenseI64ArrayAttr.get(type_.shape)
            rows.append(ir.DictAttr.get(row))
        return ir.ArrayAttr.get(rows)

    def _call(self, number: int, node: Node) -> list[ir.Value]:
        factors = self._spread.of_call(number)
        self._writer.place(node.op.location, attributes_of(node.op, "dist.phase"))
        operands = self._operands(node, factors)
        made = self._build(node, operands, factors)
        results = []
        for i, (value, new) in enumerate(zip(node.results, made, strict=True)):
            type_ = node.spec.results[i]
            if type_ is None or not (factors or any(self._spread.padding(value))):
                results.append(new)
                continue
            padding = tuple(of_dim(d, node.rule.sizes, factors) for d in node.rule.results[i])
            known = [self._pad_values.get(o, {}) for o in operands]
            self._pad_values[new] = made_values(node, i, factors, known)
            for dim, span in worth_filling(node, i, factors, self._pad_values[new]):
                new = self._filled(new, dim, type_.shape[dim], padding, span, 0.0)
            results.append(self._converted(new, type_.shape, padding, self._spread.padding(value)))
            if results[-1] != new:
                move_attributes(new.owner, results[-1].owner, "dist.refine")
        return results

    def _operands(self, node: Node, factors: FactorPadding) -> list[ir.Value]:
        """Return a call's operands, padded like its factors, with padding filled if it would affect
        results.
        """
        rule, types = node.rule, [self._program.types[v] for v in node.operands]
        paddings = [tuple(of_dim(d, rule.sizes, factors) for d in dims) for dims in rule.operands]
        made = [
            self._converted(self._values[v], t.shape, self._spread.padding(v), padding)
            for v, t, padding in zip(node.operands, types, paddings, strict=True)
        ]
        known = [self._pad_values.get(value, {}) for value in made]
        for i, dim, span, number in needed_numbers(node, factors, known):
            made[i] = self._filled(made[i], dim, types[i].shape[dim], paddings[i], span, number)
        return made

    def _filled(
        self, value: ir.Value, dim: int, size: int, padding: Padding, span: Span, number: float
    ) -> ir.Value:
        """Return ``value`` with ``number`` in one of its paddings; ``value`` itself if it holds that
        already.
        """
        known = self._pad_values.get(value, {})
        if known.get((dim, span)) == number:
            return value
        made = self._writer.masked(value, dim, size, padding[dim], span, number)
        self._pad_values[made] = {**known, (dim, span): number}
        return made

    def _converted(self, value: ir.Value, shape: tuple[int, ...], have: Padding, want: Padding) -> ir.Value:
        if have == want:
            return value
        made = self._writer.converted(value, shape, have, want)
        new, old = _zeros(want), _zeros(have)
        kept = {place: n for place, n in self._pad_values.get(value, {}).items() if place in new}
        self._pad_values[made] = {**{place: n for place, n in new.items() if place not in old}, **kept}
        return made

    def _build(self, node: Node, operands: list[ir.Value], factors: FactorPadding) -> Sequence[ir.Value]:
        op, place = node.op, (node.op.location, self._ip)
        if op.name.startswith("dist."):
            types, attributes = [o.type for o in operands], dict(op.attributes.items())
            same = ir.Operation.create(op.name, types, operands, attributes, loc=op.location, ip=self._ip)
            return same.results
        results = padded_types(node.rule.results, node.spec.results, node.rule, factors)
        args = fill(node.spec.args, operands)
        made: Sequence[ir.Value]
        if factors and node.rule.lower is not None:
            call = (node.spec, padded_rule(node.rule, factors), args, results)
            made = node.rule.lower(MlirLocal(self._builder, self._codec, *place, *call))
        else:
            made = self._builder.call(node.spec.target, args, results, *place).results
        owners = {v.owner.results[0] for v in made}
        assert len(owners) == 1, f"{node.spec.target} on padded shapes is several ops"
        copy_attributes(op, made[0].owner)
        return made

    def _return(self, position: int, value: int) -> ir.Value:
        """Return a result of the step; padding of state holds zeros."""
        shape, want = self._program.types[value].shape, self._results[position]
        new = self._converted(self._values[value], shape, self._spread.padding(value), want)
        for dim, span in _zeros(want):
            new = self._filled(new, dim, shape[dim], want, span, 0.0)
        return new


def _zeros(padding: Padding) -> PadValues:
    return {(d, s): 0.0 for d, spans in enumerate(padding) for s in spans}
