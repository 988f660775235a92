"""``torch-even-windows``: adds windows to convolutions, so that devices have equal blocks of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.spatial.convolution import FIRST_PIXELS
from shardc.dialects.rules.spatial.neighbours import Windows, setting_at
from shardc.dialects.rules.spatial.padded import PADDED, PADDED_BACKWARD
from shardc.dialects.rules.spatial.pads import CONSTANT
from shardc.passes.ingest.torch_share import drop_unread
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.pixels import (
    CONVOLUTION,
    GROUP_NORM,
    follow_pixels,
    pixels_of,
)
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.partition.local_call import CallWriter, type_of
from shardc.passes.propagate.split.cuts import Cut
from shardc.passes.propagate.split.forms import FORMS
from shardc.passes.propagate.split.torch_split_reductions import rewrite


@dataclass(frozen=True)
class TorchEvenWindows(ReadingPass):
    """Rounds the number of a convolution's windows up to equal blocks, along dims that the plan splits.

    For example, 16,000 samples make 3,199 windows of 10 samples with stride 5, so that blocks of windows do
    not correspond to blocks of samples. The pass writes ``shardc::padded_convolution`` with 3,200 windows,
    the last of which reach beyond the samples, and a slice of the first 3,199 windows. Constraints split both
    results. So ``dist-pad`` pads the slice back to 3,200 windows, and the slice costs nothing. A group norm
    of such a result becomes sums, in which padding does not count. The pass runs before other passes that
    round sizes.
    """

    name: ClassVar[str] = "torch-even-windows"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None:
            return False
        codec, seeds = ShardingCodec(reading.module.context, mesh), dict[int, dict[int, Axes]]()
        for position, value in enumerate(program.arguments):
            if program.argument_key(position)[0] == "input":
                layout = program.annotated(position, codec)
                axes = {d: a for d, a in enumerate(layout.dims) if a and not any(map(mesh.is_time, a))}
                seeds[value] = axes
        if not any(seeds.values()):
            return False
        reached = follow_pixels(program, seeds)
        builder, made, changed = CallBuilder(program.block), dict[object, ir.Value](), False
        for node in program.nodes:
            call, pixels = node.spec, pixels_of(node, reached)
            if call.target.startswith(GROUP_NORM):
                if any(call["input"].shape[d] % ways_of(axes) for d, axes in pixels.items()):
                    rewrite(Cut(node, FORMS[call.target], prod(map(ways_of, pixels.values()))), builder)
                    changed = True
                continue
            found = ((d, _Even.of(call, d, axes)) for d, axes in pixels.items())
            dims = {d: even for d, even in found if even is not None}
            if dims:
                _Rewrite(node.op, call, dims, CallWriter.at(builder, node.op), codec, made).write()
                changed = True
        if changed:
            drop_unread(program.block)
        return changed


def ways_of(axes: Axes) -> int:
    """Return the number of devices over which ``axes`` split a dim."""
    return prod(axis.size for axis in axes)


@dataclass(frozen=True)
class _Even:
    """Dim of ``x`` pixels with ``y`` windows, and the number ``more`` of windows that makes equal blocks."""

    axes: Axes
    x: int
    y: int
    more: int
    step: int
    behind: int
    """Pixels of padding after the last block, which the last window reads."""

    @property
    def ways(self) -> int:
        return ways_of(self.axes)

    @property
    def pixels(self) -> int:
        """Number of pixels in all blocks: the stride's number for each window."""
        return self.more * self.step

    @staticmethod
    def of(call: OpCall, dim: int, axes: Axes) -> _Even | None:
        """Return the rounding of a dim; None if its windows make equal blocks already, or are too few."""
        d, forward = dim - FIRST_PIXELS, call.target == CONVOLUTION
        made = call.result if forward else call["grad_output"]
        settings = (setting_at(call[name], d) for name in ("stride", "padding", "dilation"))
        windows = Windows(call["input"].shape[dim], made.shape[dim], call["weight"].shape[dim], *settings)
        ways = ways_of(axes)
        even = windows.aligned and windows.y % ways == 0
        if even or windows.patch or windows.y < ways or windows.margin > windows.reach:
            return None
        # The blocks must contain all pixels that windows read, since pixels beyond the blocks count as 0.
        read = min(windows.x, (windows.y - 1) * windows.step - windows.margin + windows.reach + 1)
        more = -(-max(windows.y, -(-read // windows.step)) // ways) * ways
        return _Even(axes, windows.x, windows.y, more, windows.step, max(windows.after, 0))


@dataclass
class _Rewrite:
    """Writer of one convolution, or its gradients, before the call that it replaces.

    ``made``: images of rounded sizes, by image and sizes. The gradients read those of the convolution.
    """

    op: ir.Operation
    call: OpCall
    dims: dict[int, _Even]
    writer: CallWriter
    codec: ShardingCodec
    made: dict[object, ir.Value] = field(repr=False)

    def write(self) -> None:
        call, op, rank = self.call, self.op, len(self.call["input"].shape) - FIRST_PIXELS
        stride, before, dilation = (
            tuple(setting_at(call[name], d) for d in range(rank))
            for name in ("stride", "padding", "dilation")
        )
        behind = tuple(
            e.behind if (e := self.dims.get(d + FIRST_PIXELS)) else n for d, n in enumerate(before)
        )
        settings = (stride, before, behind, dilation, call["groups"], False)
        if call.target == CONVOLUTION:
            image, weight, bias = op.operands[0], op.operands[1], op.operands[2] if call["bias"] else None
            made = self._called(
                PADDED, (self._image(image), weight, bias, *settings), [self._grown(call.result)]
            )
            op.results[0].replace_all_uses_with(self._resized(made[0], "more", "y"))
            return
        grad, image, weight = op.operands[0], op.operands[1], op.operands[2]
        given, others = call.results[0], call.results[1:]
        types = [None if given is None else type_of(self._image(image)), *others]
        grad = self._resized(grad, "y", "more")
        made = self._called(
            PADDED_BACKWARD, (grad, self._image(image), weight, *settings, call["output_mask"]), types
        )
        if given is not None:
            made[0] = self._resized(made[0], "pixels", "x")
        for old, new in zip(op.results, made, strict=True):
            old.replace_all_uses_with(new)

    def _called(
        self, target: str, args: Sequence[object], types: Sequence[TensorType | None]
    ) -> list[ir.Value]:
        op = self.op
        place = ir.InsertionPoint(op)
        return list(
            self.writer.builder.call(target, args, types, op.location, place, attributes_of(op)).results
        )

    def _grown(self, made: TensorType) -> TensorType:
        shape = tuple(e.more if (e := self.dims.get(d)) else n for d, n in enumerate(made.shape))
        return TensorType(shape, made.dtype)

    def _image(self, image: ir.Value) -> ir.Value:
        key = (image, tuple((d, e.pixels) for d, e in self.dims.items()))
        if key not in self.made:
            self.made[key] = self._resized(image, "x", "pixels")
        return self.made[key]

    def _resized(self, value: ir.Value, given: str, wanted: str) -> ir.Value:
        """Return ``value`` extended by zeros, or shortened to its first elements, along all split dims.

        Args:
            given: Name of the field of :class:`_Even` with the present number of elements.
            wanted: Name of the field with the wanted number.
        """
        value = self._constraint(value)
        for d, even in self.dims.items():
            have, want = getattr(even, given), getattr(even, wanted)
            stored, kept = (-(-n // even.ways) * even.ways for n in (have, want))
            shape = type_of(value).shape
            if have != stored:
                filled = (*shape[:d], stored, *shape[d + 1 :])
                value = self.writer.call("aten.slice_backward", value, filled, d, 0, have, 1)
            if stored != kept:
                pairs = (*(0, 0) * (len(shape) - 1 - d), 0, kept - stored)
                value = self.writer.call(CONSTANT, self._constraint(value), pairs, 0)
            if kept != want:
                value = self.writer.call("aten.slice.Tensor", self._constraint(value), d, 0, want, 1)
        return self._constraint(value)

    def _constraint(self, value: ir.Value) -> ir.Value:
        """Return ``value`` under a constraint that splits the dims of pixels and leaves the others open."""
        rank, place = len(type_of(value).shape), ir.InsertionPoint(self.op)
        cut = tuple(e.axes if (e := self.dims.get(d)) else () for d in range(rank))
        sharding = Sharding(cut, (), tuple(d not in self.dims for d in range(rank)))
        made = constraint(value, sharding, self.codec, loc=self.op.location, ip=place)
        copy_attributes(self.op, made.owner, "dist.phase")
        return made
