"""Bodies of stages for each slice of the tokens, which replace bodies for whole micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch_mlir import ir

from shardc.diagnostics.passes.pipeline import NotCausal
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.location import source_line
from shardc.dialects.pipe.stage import stage
from shardc.dialects.pipe.stage_graph import StageGraph
from shardc.dialects.pipe.yield_op import yield_values
from shardc.passes.manager.attributes import copy_attributes, drop_attributes
from shardc.passes.manager.copy_ops import Copier, reads
from shardc.passes.partition.local_call import CallWriter, MlirLocal
from shardc.passes.pipeline.stages.places import Assignment
from shardc.passes.pipeline.stages.stage_bodies import StageBody, Stages, between, write_fold
from shardc.passes.pipeline.stages.step_program import StepProgram, tensor
from shardc.passes.pipeline.stages.token_slices import ATTENTION_BACKWARD, SlicedCall, TokenCut, TokenSlices


def slice_bodies(whole: Stages, assignment: Assignment, slices: TokenSlices) -> Stages:
    """Return a body for each slice of each body in ``whole``.

    A slice also reads the keys and values of earlier slices and, in backward, the gradients of its own keys
    and values from later slices.
    """
    bodies = {
        (index, kind, number): _sliced(body, number, slices)
        for (index, kind, _), body in whole.bodies.items()
        for number in range(slices.count)
    }
    _find_outputs(bodies)
    graph = StageGraph.chain(assignment.stages)
    return Stages(bodies, graph, *between(bodies, assignment, graph), slices)


def _sliced(body: StageBody, number: int, slices: TokenSlices) -> StageBody:
    made = {result for op in body.ops for result in op.results}
    shared = dict.fromkeys(v for op in body.ops for v in slices.shared(op))
    earlier = [(v, before) for v in shared for before in range(number)]
    carried: list[ir.Value] = [v for op in body.ops for v in slices.carried(op)]
    # A term that is not split into slices is the same in all of them, and is added once.
    folds = [f for f in body.folds if number == 0 or f.term in slices.lays]
    return replace(
        body,
        folds=folds,
        inputs=[v for v in body.inputs if v not in made],
        outputs=[],
        slice=number,
        earlier=earlier,
        rest_in=carried if number + 1 < slices.count else [],
        rest_out=carried if number else [],
    )


def _find_outputs(bodies: Mapping[tuple[int, str, int], StageBody]) -> None:
    read = {v for body in bodies.values() for v in [*body.inputs, *(v for v, _ in body.earlier)]}
    for body in bodies.values():
        body.outputs = [result for op in body.ops for result in op.results if result in read]


def write_sliced(program: StepProgram, stages: Stages, ip: ir.InsertionPoint, codec: ShardingCodec) -> None:
    """Insert a ``pipe.stage`` for each body of ``slice_bodies`` at ``ip`` in the module."""
    for body in stages.bodies.values():
        _SliceWriter(program, stages, body, ip, codec).write()


class _SliceWriter:
    """Writer of one body. ``copier.values`` maps a value of the micro-batch to its part, or to the whole."""

    def __init__(
        self,
        program: StepProgram,
        stages: Stages,
        body: StageBody,
        ip: ir.InsertionPoint,
        codec: ShardingCodec,
    ) -> None:
        assert stages.slices is not None
        self._program, self._stages, self._body, self._slices = program, stages, body, stages.slices
        self._codec = codec
        self._start, self._end = self._slices.starts[body.slice : body.slice + 2]
        self._loc = body.ops[0].location if body.ops else program.loop.location
        sums = [program.carried[n] for n in body.numbers]
        types = stages.argument_types(body) + [v.type for v in [*body.captures, *sums]]
        block = stage(body.index, body.kind, types, body.slice, len(sums), loc=self._loc, ip=ip)
        given = iter(block.arguments)
        self._ip, self._builder = ir.InsertionPoint(block), CallBuilder(block)
        values: dict[ir.Value, ir.Value] = {v: next(given) for v in body.inputs}
        self._earlier = {key: next(given) for key in body.earlier}
        self._rests = {v: next(given) for v in body.rest_in}
        values.update((v, next(given)) for v in body.captures)
        self._sums: dict[int, ir.Value] = {n: next(given) for n in body.numbers}
        self._handed: dict[ir.Value, ir.Value] = {}
        self._cuts: dict[tuple[ir.Value, tuple[TokenCut | None, ...]], ir.Value] = {}
        self._copier = Copier(self._ip, values)

    def write(self) -> None:
        body, copier = self._body, self._copier
        for value in body.integers:
            copier.values[value] = copier.operand(self._program.captures[value])
        for op in body.ops:
            call = self._slices.calls.get(op.results[0])
            if call is not None:
                self._call(op, call)
            elif op.name == "dist.all_reduce" and self._lays(op.operands[0]):
                self._same(op)
            else:
                self._whole(op)
        made = [copier.values[v] for v in body.outputs] + [self._handed[v] for v in body.rest_out]
        locations = {fold.term: fold.op.location for fold in body.folds}
        copier.values.update({term: self._widened(term, loc) for term, loc in locations.items()})
        for fold in body.folds:
            self._sums[fold.number] = write_fold(self._program, fold, self._sums[fold.number], copier)
        yield_values([*made, *self._sums.values()], loc=self._loc, ip=self._ip)

    def _lays(self, value: ir.Value) -> bool:
        return value in self._slices.lays

    def _whole(self, op: ir.Operation) -> None:
        for value in reads(op):
            if self._lays(value) and self._slices.lays[value].is_cut:
                raise NotCausal(op=op.name, why="it needs all tokens at once", where=source_line(op.location))
        made = self._copier.copy(op)
        if self._body.slice:
            drop_attributes(made, "dist.name")  # the same in each slice, and observed once

    def _same(self, op: ir.Operation) -> None:
        operand, attributes = self._copier.values[op.operands[0]], dict(op.attributes.items())
        self._copier.values[op.results[0]] = ir.Operation.create(
            op.name, [operand.type], [operand], attributes, loc=op.location, ip=self._ip
        ).result

    def _call(self, op: ir.Operation, call: SlicedCall) -> None:
        types: list[TensorType | None] = []
        for result in op.results:
            found = tensor(result)
            assert found is not None
            lay = self._slices.lays.get(result)
            types.append(found if lay is None else found.with_shape(self._part(found.shape, lay.dims)))
        shared = self._slices.shared(op)
        needs = iter(call.needs)
        operands = []
        for value in call.operands:
            if tensor(value) is None:
                operands.append(self._copier.operand(value))
            elif value in shared:
                next(needs)
                operands.append(self._up_to_here(value, op.location))
            else:
                operands.append(self._cut(value, next(needs), op.location))
        args = fill(call.spec.args, operands)
        made: Sequence[ir.Value]
        if shared:
            made = self._attention(op, call, args, types)
        elif call.rule.lower is not None and call.factors:
            place = (self._builder, self._codec, op.location, self._ip)
            given, ends = (call.spec, call.rule, args, tuple(types)), (self._start, self._end)
            made = call.rule.lower(_SliceLocal(*place, *given, factors=call.factors, ends=ends))
        else:
            made = self._builder.call(call.spec.target, args, types, op.location, self._ip).results
        if len({value.owner.results[0] for value in made}) == 1:
            copy_attributes(op, made[0].owner, "dist.phase", "dist.name", "dist.shardings")
        self._copier.values.update(zip(op.results, made, strict=True))

    def _attention(
        self, op: ir.Operation, call: SlicedCall, args: tuple[object, ...], types: list[TensorType | None]
    ) -> Sequence[ir.Value]:
        """Write the attention of a slice's queries to all keys so far.

        In the keys' gradients, the slice's own are last; the others are passed to the previous slice.
        """
        args = (*args[:-1], self._start)
        if call.spec.target == ATTENTION_BACKWARD:
            wide = ((t, (*t.shape[:2], self._end, *t.shape[3:])) for t in types[1:3] if t is not None)
            types = [types[0], *(t.with_shape(shape) for t, shape in wide)]
        queries, *made = self._builder.call(call.spec.target, args, types, op.location, self._ip).results
        if call.spec.target != ATTENTION_BACKWARD:
            return [queries, *made]
        writer = self._at(op.location)
        found: list[ir.Value] = [queries]
        for value, gradient in zip(self._slices.carried(op), made, strict=True):
            if value in self._rests:
                gradient = writer.call("aten.add.Tensor", gradient, self._rests[value], 1)
            if self._start:
                self._handed[value] = writer.call("aten.slice.Tensor", gradient, 2, 0, self._start, 1)
                gradient = writer.call("aten.slice.Tensor", gradient, 2, self._start, self._end, 1)
            found.append(gradient)
        return found

    def _at(self, loc: ir.Location) -> CallWriter:
        return CallWriter(self._builder, loc, self._ip)

    def _up_to_here(self, value: ir.Value, loc: ir.Location) -> ir.Value:
        parts: list[ir.Value] = [self._earlier[value, before] for before in range(self._body.slice)]
        parts.append(self._copier.values[value])
        return parts[0] if len(parts) == 1 else self._at(loc).call("aten.cat", tuple(parts), 2)

    def _part(self, shape: tuple[int, ...], dims: tuple[TokenCut | None, ...]) -> tuple[int, ...]:
        return self._slices.shape(shape, dims, self._start, self._end)

    def _cut(self, value: ir.Value, need: tuple[TokenCut | None, ...], loc: ir.Location) -> ir.Value:
        """Return the part of a value that an op of the slice reads."""
        handle = self._copier.operand(value)
        lay = self._slices.lays.get(value)
        if (lay is not None and lay.is_cut) or not any(need):
            return handle
        if (value, need) not in self._cuts:
            found = tensor(value)
            assert found is not None
            shape = list(found.shape)
            for dim, cut in enumerate(need):
                if cut is not None:
                    handle = self._cut_dim(handle, shape, dim, cut, self._at(loc))
            self._cuts[value, need] = handle
        return self._cuts[value, need]

    def _cut_dim(
        self, handle: ir.Value, shape: list[int], dim: int, cut: TokenCut, writer: CallWriter
    ) -> ir.Value:
        """Slice one dim of ``handle``. ``shape`` is its shape, and is updated."""
        start, end = self._start * cut.inner, self._end * cut.inner
        apart = (*shape[:dim], cut.outer, shape[dim] // cut.outer, *shape[dim + 1 :])
        shape[dim] = cut.outer * (end - start)
        if cut.outer == 1:
            return writer.call("aten.slice.Tensor", handle, dim, start, end, 1)
        handle = writer.call("aten.view", handle, apart)
        handle = writer.call("aten.slice.Tensor", handle, dim + 1, start, end, 1)
        return writer.call("aten.reshape", handle, tuple(shape))

    def _widened(self, value: ir.Value, loc: ir.Location) -> ir.Value:
        """Return the part of a value, padded with zeros for the other slices."""
        handle, lay, found = self._copier.values[value], self._slices.lays.get(value), tensor(value)
        if lay is None or found is None:
            return handle
        shape, writer = list(self._part(found.shape, lay.dims)), self._at(loc)
        for dim, cut in enumerate(lay.dims):
            if cut is None:
                continue
            before, behind = self._start * cut.inner, (self._slices.tokens - self._end) * cut.inner
            apart = (*shape[:dim], cut.outer, shape[dim] // cut.outer, *shape[dim + 1 :])
            pads = (0, 0) * (len(shape) - dim - 1) + (before, behind)
            handle = writer.call("aten.reshape", handle, apart)
            handle = writer.call("aten.constant_pad_nd", handle, pads, 0)
            shape[dim] = found.shape[dim]
            handle = writer.call("aten.reshape", handle, tuple(shape))
        return handle


@dataclass
class _SliceLocal(MlirLocal):
    """A slice's version of a call, for the rule's lowering."""

    factors: Mapping[str, TokenCut] = field(kw_only=True)
    ends: tuple[int, int] = field(kw_only=True)

    def size(self, factor: str) -> int:
        cut = self.factors.get(factor)
        start, end = self.ends
        return self.rule.sizes[factor] if cut is None else cut.outer * (end - start) * cut.inner

    def ways(self, factor: str) -> int:
        return 2 if factor in self.factors else 1

    def offset(self, factor: str, scale: int = 1, base: int | ir.Value = 0) -> int | ir.Value:
        cut = self.factors.get(factor)
        if cut is None:
            return base
        if cut.outer != 1 or isinstance(base, ir.Value):
            why = "its result depends on the number of tokens"
            raise NotCausal(op=self.spec.target, why=why, where=source_line(self.loc))
        return base + scale * self.ends[0] * cut.inner
