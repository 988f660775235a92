"""Search for calls that pad or crop an image along dims that will be split over devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, Sharding
from shardc.dialects.rules.spatial.pads import CONSTANT, PADS, amounts, reads_padded
from shardc.passes.manager.program import Node, Program
from shardc.passes.propagate.state import PropagationState

IMAGE_DIMS = 4
"""Least rank of an image; tensors of fewer dims are sequences, whose parts depend on positions."""
SLICES = ("aten.slice.Tensor", "aten.slice_backward")


@dataclass(frozen=True)
class ImageDim:
    """A dim with ``given`` elements in the operand and ``made`` in the result, to be split over ``axes``."""

    dim: int
    axes: Axes
    given: int
    made: int

    @property
    def ways(self) -> int:
        return prod(a.size for a in self.axes)

    @property
    def even_given(self) -> int:
        return -(-self.given // self.ways) * self.ways

    @property
    def even_made(self) -> int:
        return -(-self.made // self.ways) * self.ways

    @property
    def divides(self) -> bool:
        return (self.given, self.made) == (self.even_given, self.even_made)


@dataclass(frozen=True)
class ImagePad:
    """A pad, as a call of ``target``, and its ``dims`` that change size.

    ``pairs`` are the elements before and after each dim, the last dim first. ``layout`` is the operand's
    sharding.
    """

    node: Node
    target: str
    pairs: tuple[int, ...]
    dims: tuple[ImageDim, ...]
    layout: Sharding

    @property
    def is_first_part(self) -> bool:
        """True if the pad is a slice of the first elements, and the padded result has all elements anyway."""
        is_slice = self.node.spec.target == "aten.slice.Tensor"
        starts = not any(self.pairs[::2])
        return is_slice and starts and all(d.given == d.even_made for d in self.dims)

    @property
    def sharding(self) -> Sharding:
        """The constraint on both sides: split along ``dims``, open along the others."""
        axes = {d.dim: d.axes for d in self.dims}
        cut = tuple(axes.get(d, own) for d, own in enumerate(self.layout.dims))
        return Sharding(cut, (), tuple(d not in axes for d in range(len(cut))))


def may_pad(node: Node) -> bool:
    call = node.spec
    return (
        call.target in (*PADS, *SLICES)
        and len(call.result.shape) >= IMAGE_DIMS
        and call.result.dtype.is_floating_point
        and call.tensors[0].shape != call.result.shape
    )


def find_pads(program: Program, state: PropagationState, mesh: Mesh) -> Iterator[ImagePad]:
    """Yield the pads and crops that cannot be computed on equal blocks as they are."""
    for node in filter(may_pad, program.nodes):
        pairs = _pairs(node.spec)
        layout = state.sharding(node.operands[0])
        dims = tuple(d for d in _dims(node.spec, layout, state.sharding(node.results[0])) if d.ways > 1)
        if pairs is None or not dims or any(mesh.is_time(a) for d in dims for a in d.axes):
            continue
        is_slice = node.spec.target in SLICES
        target = CONSTANT if is_slice else node.spec.target
        uneven = is_slice or not all(d.divides for d in dims)
        if uneven and all(_can_be_filled(node.spec, d) for d in dims):
            yield ImagePad(node, target, pairs, dims, layout)


def _pairs(call: OpCall) -> tuple[int, ...] | None:
    """Return the padding; None for slices with a step, empty slices, and one of several equal parts, as of
    heads.
    """
    if call.target not in SLICES:
        return amounts(call)
    sides = call.tensors[0].shape, call.result.shape
    large, small = sides if call.target == SLICES[0] else sides[::-1]
    dim, start = call["dim"] % len(large), call["start"] or 0
    size, part = large[dim], small[dim]
    if call["step"] != 1 or start < 0 or not part or size % part == 0:
        return None
    sign = -1 if call.target == SLICES[0] else 1
    return (*(0, 0) * (len(large) - 1 - dim), sign * start, sign * (size - start - part))


def _dims(call: OpCall, given: Sharding, made: Sharding) -> Iterator[ImageDim]:
    for d, sizes in enumerate(zip(call.tensors[0].shape, call.result.shape, strict=True)):
        if sizes[0] != sizes[1]:
            axes = max(given.dims[d], made.dims[d], key=lambda axes: prod(a.size for a in axes))
            # Axes that split another dim of the operand stay there: the pad is local to their blocks.
            others = [a for other, dim in enumerate(given.dims) if other != d for a in dim]
            if not any(a.overlaps(other) for a in axes for other in others):
                yield ImageDim(d, axes, *sizes)


def _can_be_filled(call: OpCall, d: ImageDim) -> bool:
    """Return whether the operand may be filled up with zeros without changing the result.

    Fewer elements than devices are not an image: a loop over the dim selected them, or they are its gradient.
    """
    if min(d.given, d.made) < d.ways:
        return False
    if call.target in SLICES:
        return True
    if call.target == CONSTANT:
        return d.given == d.even_given or call["value"] == 0
    inner = d.made == d.even_made if reads_padded(call) else d.given == d.even_given
    return inner and abs(d.even_given - d.even_made) < min(d.given, d.made)
