"""The bodies of stages for one slice of the tokens each, in place of those for whole micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_mlir import ir

from shardc.diagnostics.pipeline import NotCausal
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.location import source_line
from shardc.dialects.pipe.stage import stage
from shardc.dialects.pipe.yield_op import yield_values
from shardc.dialects.rules.rule import replicated_rule
from shardc.passes.partition.local_call import MlirLocal
from shardc.passes.pipeline.ranks.copy_ops import Copier
from shardc.passes.pipeline.stages.assign_stages import Assignment
from shardc.passes.pipeline.stages.stage_bodies import StageBody, Stages, between, write_fold
from shardc.passes.pipeline.stages.step_program import StepProgram, reads, tensor
from shardc.passes.pipeline.stages.token_slices import ATTENTION_BACKWARD, Cut, SlicedCall, TokenSlices

KEPT = ("dist.phase", "dist.name", "dist.shardings")


def slice_bodies(whole: Stages, assignment: Assignment, slices: TokenSlices) -> Stages:
    """A body for each slice of each of ``whole``'s. Beside what the whole one reads, one of slice t reads the
    keys and values of earlier slices, and in backward the terms that later slices have for its own.
    """
    bodies: dict[tuple[int, str, int], StageBody] = {}
    for (index, kind, _), body in whole.bodies.items():
        for number in range(slices.count):
            bodies[index, kind, number] = _sliced(body, number, slices, assignment)
    _find_outputs(bodies)
    return Stages(bodies, *between(bodies, assignment), slices)


def _sliced(body: StageBody, number: int, slices: TokenSlices, assignment: Assignment) -> StageBody:
    made = {result for op in body.ops for result in op.results}
    shared = dict.fromkeys(v for op in body.ops for v in slices.shared(op))
    earlier = [(v, before) for v in shared for before in range(number)]
    carried = [v for op in body.ops for v in slices.carried(op)]
    # A term that slices have no parts of is the same in all of them, and counts once.
    folds = [f for f in body.folds if number == 0 or f.term in slices.lays]
    inputs = [v for v in body.inputs if v not in made]
    rest_in = carried if number + 1 < slices.count else []
    rest_out = carried if number else []
    found = StageBody(
        body.index, body.kind, body.ops, folds, inputs, body.captures, body.integers, [], number
    )
    found.earlier, found.rest_in, found.rest_out = earlier, rest_in, rest_out
    return found


def _find_outputs(bodies: Mapping[tuple[int, str, int], StageBody]) -> None:
    read = {v for body in bodies.values() for v in [*body.inputs, *(v for v, _ in body.earlier)]}
    for body in bodies.values():
        body.outputs = [result for op in body.ops for result in op.results if result in read]


def write_sliced(program: StepProgram, stages: Stages, ip: ir.InsertionPoint, codec: ShardingCodec) -> None:
    """Puts a ``pipe.stage`` for each body of ``slice_bodies`` at ``ip`` in the module."""
    for body in stages.bodies.values():
        _Writer(program, stages, body, ip, codec).write()


class _Writer:
    """Writes one body. ``copier.values``: a value of the micro-batch -> its part, or all of it where it is
    whole.
    """

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
        number = body.slice
        self._start, self._end = self._slices.starts[number], self._slices.starts[number + 1]
        self._loc = body.ops[0].location if body.ops else program.loop.location
        sums = [program.carried[n] for n in body.numbers]
        types = stages.argument_types(body) + [v.type for v in [*body.captures, *sums]]
        self._block = stage(body.index, body.kind, types, number, loc=self._loc, ip=ip)
        given = iter(self._block.arguments)
        self._ip = ir.InsertionPoint(self._block)
        self._builder = CallBuilder(self._block)
        values = {v: next(given) for v in body.inputs}
        self._earlier = {key: next(given) for key in body.earlier}
        self._rests = {v: next(given) for v in body.rest_in}
        values.update((v, next(given)) for v in body.captures)
        self._sums = {n: next(given) for n in body.numbers}
        self._handed: dict[ir.Value, ir.Value] = {}
        self._cuts: dict[tuple[ir.Value, tuple[Cut | None, ...]], ir.Value] = {}
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
                raise NotCausal(op=op.name, why="it needs all tokens", where=source_line(op.location))
        made = self._copier.copy(op)
        if self._body.slice and "dist.name" in made.attributes:
            del made.attributes["dist.name"]  # the same in each slice, and observed once

    def _same(self, op: ir.Operation) -> None:
        operand = self._copier.values[op.operands[0]]
        attributes = {name: op.attributes[name] for name in op.attributes}
        made = ir.Operation.create(
            op.name, [operand.type], [operand], attributes, loc=op.location, ip=self._ip
        )
        self._copier.values[op.results[0]] = made.results[0]

    def _call(self, op: ir.Operation, call: SlicedCall) -> None:
        types: list[TensorType | None] = []
        for result in op.results:
            found = tensor(result)
            assert found is not None
            lay = self._slices.lays.get(result)
            shape = found.shape if lay is None else self._part(found.shape, lay.dims)
            types.append(found.with_shape(shape))
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
        local = _SliceLocal(self, op.location, call, args, tuple(types))
        if shared:
            made = self._attention(op, call, args, types)
        elif call.rule.lower is not None and call.factors:
            made = list(call.rule.lower(local))
        else:
            made = list(self._builder.call(call.spec.target, args, types, op.location, self._ip).results)
        owners = {value.owner.operation.results[0]: value.owner.operation for value in made}
        if len(owners) == 1:
            (owner,) = owners.values()
            for name in KEPT:
                if name in op.attributes:
                    owner.attributes[name] = op.attributes[name]
        self._copier.values.update(zip(op.results, made, strict=True))

    def _attention(
        self, op: ir.Operation, call: SlicedCall, args: tuple[Any, ...], types: list[TensorType | None]
    ) -> list[ir.Value]:
        """Attention of a slice's queries to all keys so far. Backward gives the gradients of these: the
        slice's own are at the end, and what is before is handed to the slice before.
        """
        args = (*args[:-1], self._start)
        if call.spec.target == ATTENTION_BACKWARD:
            wide = [
                t.with_shape((*t.shape[:2], self._end, *t.shape[3:])) for t in types[1:3] if t is not None
            ]
            types = [types[0], *wide]
        made = list(self._builder.call(call.spec.target, args, types, op.location, self._ip).results)
        if call.spec.target != ATTENTION_BACKWARD:
            return made
        found = [made[0]]
        for value, gradient in zip(self._slices.carried(op), made[1:], strict=True):
            if value in self._rests:
                gradient = self.emit(op.location, "aten.add.Tensor", gradient, self._rests[value], 1)
            if self._start:
                self._handed[value] = self.emit(
                    op.location, "aten.slice.Tensor", gradient, 2, 0, self._start, 1
                )
                gradient = self.emit(op.location, "aten.slice.Tensor", gradient, 2, self._start, self._end, 1)
            found.append(gradient)
        return found

    def _up_to_here(self, value: ir.Value, loc: ir.Location) -> ir.Value:
        parts = [self._earlier[value, before] for before in range(self._body.slice)]
        parts.append(self._copier.values[value])
        return parts[0] if len(parts) == 1 else self.emit(loc, "aten.cat", tuple(parts), 2)

    def _part(self, shape: tuple[int, ...], dims: tuple[Cut | None, ...]) -> tuple[int, ...]:
        return self._slices.shape(shape, dims, self._start, self._end)

    def _cut(self, value: ir.Value, need: tuple[Cut | None, ...], loc: ir.Location) -> ir.Value:
        """The part of a value that an op of the slice reads."""
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
                    handle = self._cut_dim(handle, shape, dim, cut, loc)
            self._cuts[value, need] = handle
        return self._cuts[value, need]

    def _cut_dim(self, handle: ir.Value, shape: list[int], dim: int, cut: Cut, loc: ir.Location) -> ir.Value:
        """``shape`` is that of ``handle``, and follows."""
        start, end, size = (
            self._start * cut.inner,
            self._end * cut.inner,
            cut.outer * (self._end - self._start),
        )
        if cut.outer == 1:
            handle = self.emit(loc, "aten.slice.Tensor", handle, dim, start, end, 1)
        else:
            apart = (*shape[:dim], cut.outer, shape[dim] // cut.outer, *shape[dim + 1 :])
            handle = self.emit(loc, "aten.view", handle, apart)
            handle = self.emit(loc, "aten.slice.Tensor", handle, dim + 1, start, end, 1)
            handle = self.emit(
                loc, "aten.reshape", handle, (*shape[:dim], size * cut.inner, *shape[dim + 1 :])
            )
        shape[dim] = size * cut.inner
        return handle

    def _widened(self, value: ir.Value, loc: ir.Location) -> ir.Value:
        """The part of a value with zeros where the other slices' are."""
        handle, lay, found = self._copier.values[value], self._slices.lays.get(value), tensor(value)
        if lay is None or found is None:
            return handle
        shape = list(self._part(found.shape, lay.dims))
        for dim, cut in enumerate(lay.dims):
            if cut is None:
                continue
            before, behind = self._start * cut.inner, (self._slices.tokens - self._end) * cut.inner
            apart = (*shape[:dim], cut.outer, shape[dim] // cut.outer, *shape[dim + 1 :])
            handle = self.emit(loc, "aten.reshape", handle, apart)
            handle = self.emit(
                loc, "aten.constant_pad_nd", handle, (0, 0) * (len(shape) - dim - 1) + (before, behind), 0
            )
            shape[dim] = found.shape[dim]
            handle = self.emit(loc, "aten.reshape", handle, tuple(shape))
        return handle

    def emit(self, loc: ir.Location, target: str, *args: Any) -> Any:
        """Builds one op; results as of ``MlirLocal.emit``."""
        call = OpCall(target, (), ())
        local = MlirLocal(
            self._builder, self._codec, (loc, self._ip), (call, replicated_rule(call), {}), (), ()
        )
        return local.emit(target, *args)


class _SliceLocal(MlirLocal):
    """A slice's version of a call, for the rule's ``lower``."""

    def __init__(
        self,
        writer: _Writer,
        loc: ir.Location,
        call: SlicedCall,
        args: tuple[Any, ...],
        results: tuple[TensorType | None, ...],
    ) -> None:
        super().__init__(
            writer._builder, writer._codec, (loc, writer._ip), (call.spec, call.rule, {}), args, results
        )
        self._factors, self._start, self._end = call.factors, writer._start, writer._end

    def size(self, factor: str) -> int:
        cut = self._factors.get(factor)
        return self._rule.sizes[factor] if cut is None else cut.outer * (self._end - self._start) * cut.inner

    def ways(self, factor: str) -> int:
        return 2 if factor in self._factors else 1

    def offset(self, factor: str, scale: int = 1, base: Any = 0) -> Any:
        cut = self._factors.get(factor)
        if cut is None:
            return base
        if cut.outer != 1 or isinstance(base, ir.Value):
            raise NotCausal(
                op=self.spec.target, why="it counts elements of the sequence", where=source_line(self._loc)
            )
        return base + scale * self._start * cut.inner
