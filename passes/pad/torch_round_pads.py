"""``torch-round-pads``: rounds up sizes of padded images, so that they divide into equal blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill
from shardc.dialects.aten.schema import position
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.rules.spatial.pads import CONSTANT, reads_padded
from shardc.passes.manager.attributes import copy_attributes
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.pad.image_pads import ImageDim, ImagePad, find_pads, may_pad
from shardc.passes.partition.local_call import CallWriter, type_of
from shardc.passes.propagate.dist_propagate import propagate


@dataclass(frozen=True)
class TorchRoundPads(ReadingPass):
    """Rounds up the sizes of padded images along dims that will be split over devices.

    A pad of 64 rows to 66 over 8 devices becomes a pad to 72, and a slice of 66 with a constraint that splits
    them. ``dist-pad`` then pads these 66 rows to 72, which makes the slice a no-op. A gradient is the
    reverse: 66 rows are filled up to 72, and a negative pad leaves 64. Slices of images are rewritten as
    negative pads. The pass runs before ``dist-pad``, and predicts shardings by a trial propagation.
    """

    name: ClassVar[str] = "torch-round-pads"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None or not any(map(may_pad, program.nodes)):
            return False
        codec = ShardingCodec(reading.module.context, mesh)
        found = list(find_pads(program, propagate(program, codec, mesh), mesh))
        builder = CallBuilder(program.block)
        for pad in found:
            _Rounding(pad, CallWriter.at(builder, pad.node.op), codec).write()
        return bool(found)


@dataclass(frozen=True)
class _Rounding:
    """Writer of a rounded pad before the call that it replaces."""

    pad: ImagePad
    writer: CallWriter
    codec: ShardingCodec

    def write(self) -> None:
        op = self.pad.node.op
        tensors = [v for v in op.operands if read_type(v.type) is not None]
        made = self._first_part(tensors[0]) if self.pad.is_first_part else self._even(tensors)
        made = self._constraint(made)
        copy_attributes(op, made.owner)
        op.results[0].replace_all_uses_with(made)
        op.erase()

    def _first_part(self, value: ir.Value) -> ir.Value:
        for d in self.pad.dims:
            value = self.writer.call("aten.slice.Tensor", value, d.dim, 0, d.made, 1)
        return value

    def _even(self, tensors: list[ir.Value]) -> ir.Value:
        """Write the pad between sizes that divide."""
        for d in self.pad.dims:
            if d.given != d.even_given:
                tensors[0] = self._filled(self._constraint(tensors[0]), d)
        made = self.writer.call(self.pad.target, *self._arguments(tensors))
        for d in self.pad.dims:
            if d.made != d.even_made:
                made = self.writer.call("aten.slice.Tensor", made, d.dim, 0, d.made, 1)
        return made

    def _filled(self, value: ir.Value, d: ImageDim) -> ir.Value:
        shape = [*type_of(value).shape]
        shape[d.dim] = d.even_given
        return self.writer.call("aten.slice_backward", value, tuple(shape), d.dim, 0, d.given, 1)

    def _arguments(self, tensors: list[ir.Value]) -> list[object]:
        spec, pairs = self.pad.node.spec, self._pairs()
        if self.pad.target != spec.target:
            return [tensors[0], pairs, 0]
        args = list(fill(spec.args, tensors))
        args[position(spec.target, "pad" if spec.target == CONSTANT else "padding")] = pairs
        return args

    def _pairs(self) -> tuple[int, ...]:
        """Return the padding with more elements after each dim, so that both sizes divide."""
        pairs, rank = list(self.pad.pairs), len(self.pad.layout.dims)
        sign = -1 if reads_padded(self.pad.node.spec) and self.pad.target != CONSTANT else 1
        for d in self.pad.dims:
            grown = d.even_made - d.even_given - (d.made - d.given)
            pairs[2 * (rank - 1 - d.dim) + 1] += sign * grown
        return tuple(pairs)

    def _constraint(self, value: ir.Value) -> ir.Value:
        op, place = self.pad.node.op, ir.InsertionPoint(self.pad.node.op)
        made = constraint(value, self.pad.sharding, self.codec, loc=op.location, ip=place)
        copy_attributes(op, made.owner, "dist.phase")
        return made
