"""Seeds of padding: arguments and constraints whose annotated shardings do not divide their dims."""

from __future__ import annotations

from math import prod

from shardc.diagnostics.passes.plan import TooManyWays
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.location import source_line
from shardc.passes.manager.program import Program
from shardc.passes.pad.span import Padding, Span, Spans, no_padding, padded_size
from shardc.passes.propagate.blocks import block_size
from shardc.passes.propagate.refinement import read_refinements

MOST_PADDING = 1 / 8
"""Largest padding of stored state, as a fraction of a dim. The first dim below it is padded, because leading
dims pack best.
"""


def find_seeds(program: Program, codec: ShardingCodec, mesh: Mesh) -> dict[int, Padding]:
    """Return the padding of each value that a plan splits into blocks that do not divide it.

    Raises TooManyWays if a dim has fewer elements than blocks.
    """
    cuts = {value: program.annotated(i, codec).dims for i, value in enumerate(program.arguments)}
    for node in program.nodes:
        if node.op.name == "dist.constraint":
            cuts[node.results[0]] = codec.read(node.op.attributes["sharding"]).dims
    refinements = read_refinements(program)
    for r in refinements:
        if r.value not in cuts and r.dim >= 0:
            cuts[r.value] = ((),) * len(program.types[r.value].shape)
    refinements = [r for r in refinements if r.value in cuts]
    for r in (r for r in refinements if r.dim >= 0):
        refined = tuple((*d, mesh.whole(r.axis)) if i == r.dim else d for i, d in enumerate(cuts[r.value]))
        if program.types[r.value].shape[r.dim] >= prod(a.size for a in refined[r.dim]):
            cuts[r.value] = refined
    found = {
        v: tuple(_spans(program, v, d, axes) for d, axes in enumerate(dims))
        for v, dims in cuts.items()
        if any(dims)
    }
    for r in (r for r in refinements if r.dim < 0):
        shape, old = program.types[r.value].shape, found.get(r.value, no_padding(len(cuts[r.value])))
        found[r.value] = _stored(shape, cuts[r.value], old, mesh.whole(r.axis))
    return {v: padding for v, padding in found.items() if any(padding)}


def _stored(shape: tuple[int, ...], cuts: tuple[Axes, ...], padding: Padding, axis: Axis) -> Padding:
    """Return the padding of state that is to be split over ``axis``; padding is added only if no dim divides.

    Vectors that do not divide stay whole: they are small, and padding them costs more time than it saves
    memory.
    """
    sizes = [padded_size(n, s) for n, s in zip(shape, padding, strict=True)]
    ways = [prod(a.size for a in (*axes, axis)) for axes in cuts]
    divides = any(n % w == 0 for n, w in zip(sizes, ways, strict=True))
    free = [d for d, n in enumerate(shape) if n >= axis.size and not cuts[d] and not padding[d]]
    if len(shape) < 2 or divides or not free or any(axis.overlaps(a) for axes in cuts for a in axes):
        return padding
    more = {d: -shape[d] % axis.size / shape[d] for d in free}
    best = next((d for d in free if more[d] <= MOST_PADDING), min(free, key=more.__getitem__))
    added = Span(1, shape[best], shape[best] + -shape[best] % axis.size, stored=True)
    return tuple((added,) if d == best else s for d, s in enumerate(padding))


def _spans(program: Program, value: int, dim: int, axes: Axes) -> Spans:
    size, ways = program.types[value].shape[dim], prod(a.size for a in axes)
    producer = program.producer[value]
    role, name = ("", "") if producer >= 0 else program.argument_key(program.arguments.index(value))
    # Parameters are split between heads or groups, if there is one for every device.
    block = block_size(program, value, dim) if axes and role == "param" else 1
    if size // block % ways and size // block >= ways:
        return (Span(block, size // block, -(-size // block // ways) * ways),)
    if size % ways == 0:
        return ()
    if size < ways:
        where = None
        if producer >= 0:
            node = program.nodes[producer]
            name, where = node.spec.target, source_line(node.op.location)
        over = " x ".join(a.name for a in axes)
        raise TooManyWays(dim=dim, name=name, size=size, ways=ways, axes=over, where=where)
    return (Span(1, size, -(-size // ways) * ways),)
