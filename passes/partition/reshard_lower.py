"""Lowering of a ``dist.reshard`` to collectives over space axes and edges of time loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

from torch_mlir import ir

from shardc.cost.links import UNIFORM, LinkModel
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist import reshard_steps
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.reshard_steps import Permute, Slice, Step, ToPartial
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec, normal_partial
from shardc.dialects.dist.time_part import (
    exchanged,
    join_time,
    sharers,
    space_part,
    time_dims,
    time_heads,
    time_terms,
)
from shardc.passes.manager.attributes import i64
from shardc.passes.partition.reshard_plan import plan_reshard

EDGE = "builtin.unrealized_conversion_cast"
"""Placeholder op for a value that leaves a time loop, until the loop is formed (within
``dist-partition``).
"""
EDGE_KIND = "dist.edge"
"""Attribute of an edge: ``stack``, or the reduction over iterations."""


@dataclass(frozen=True)
class StackLoop:
    """Stack the blocks of all iterations along ``dim`` after the loop.

    ``sharers`` are the space axes whose ranks divide the iterations. A rank has zeros for the iterations of
    others, so that the whole is the sum over ranks.
    """

    dim: int
    axes: Axes
    sharers: Axes = ()

    def apply(self, sharding: Sharding) -> Sharding:
        dims = list(sharding.dims)
        dims[self.dim] = tuple(a for a in dims[self.dim] if a not in self.axes)
        shares = tuple(("sum", a) for a in self.sharers)
        return Sharding(tuple(dims), normal_partial((*sharding.partial, *shares)))


@dataclass(frozen=True)
class ReduceLoop:
    """Combine the terms of all iterations in a carried value.

    ``sharers`` are the space axes whose ranks divide the iterations; the result is partial over them.
    """

    axes: Axes
    reduction: str
    sharers: Axes = ()

    def apply(self, sharding: Sharding) -> Sharding:
        rest = tuple(t for t in sharding.partial if t[1] not in self.axes)
        return sharding.with_partial((*rest, *((self.reduction, a) for a in self.sharers)))


TimeStep = StackLoop | ReduceLoop
"""Steps out of a loop. (A step into a loop is a Slice over time axes.)"""


def plan_steps(
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    *,
    reduce_first: bool = False,
    links: LinkModel = UNIFORM,
    element_bytes: int = 1,
) -> list[Step | TimeStep]:
    """Return the cheapest chain from ``source`` to ``target`` over ``links``, including loop edges.

    Terms of iterations are summed on each device before devices communicate, with one collective after the
    loop. With ``reduce_first``, devices communicate in every iteration, so that the loop carries a split
    value. Within an iteration devices exchange only what is inside the loop's axis: for a dim split by
    ``[data, micro, tensor]``, the split over ``tensor``. A value leaves and enters a loop with the loop's
    axis innermost.
    """
    terms = time_terms(source, mesh)
    over_space = partial(_space_steps, shape=shape, mesh=mesh, links=links, element_bytes=element_bytes)
    if time_heads(source, mesh) == time_heads(target, mesh) and terms == time_terms(target, mesh):
        return list(over_space(source, target))
    steps: list[Step | TimeStep] = []
    here, outside = _time_innermost(source, mesh), _time_innermost(target, mesh)
    steps += over_space(source, here)
    entry = space_part(outside, mesh)
    inside = join_time(entry, here, mesh)
    reduce_first = reduce_first and not mesh.shares  # ranks run different iterations
    if (
        reduce_first
        and (terms or time_dims(source, mesh))
        and time_heads(here, mesh) == time_heads(inside, mesh)
    ):
        steps += over_space(here, inside)
        here = inside
    for step in _exits(here, mesh):
        steps.append(step)
        here = step.apply(here)
    steps += over_space(here, entry)
    steps += [Slice(d, axes) for d, axes in time_dims(target, mesh).items()]
    steps += over_space(outside, target)
    return steps


def _time_innermost(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Return ``sharding`` without the axes that are inside a time axis."""
    heads = time_heads(sharding, mesh)
    return Sharding(tuple(heads.get(d, axes) for d, axes in enumerate(sharding.dims)), sharding.partial)


def _space_steps(
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    links: LinkModel,
    element_bytes: int,
) -> tuple[Step, ...]:
    """Return the collectives between two layouts with the same time axes."""
    cut = time_dims(source, mesh)
    per_iteration = tuple(n // prod(a.size for a in cut.get(d, ())) for d, n in enumerate(shape))
    layouts = space_part(source, mesh), space_part(target, mesh)
    return plan_reshard(*layouts, per_iteration, mesh, links=links, element_bytes=element_bytes)


def permuted(step: Permute, here: Sharding, mesh: Mesh) -> Sharding:
    """Return the layout after a permutation within an iteration, whose own layouts have no time axes."""
    return exchanged(step.apply(space_part(here, mesh)), here, mesh)


def _exits(sharding: Sharding, mesh: Mesh) -> list[TimeStep]:
    stacks = [StackLoop(d, axes, sharers(axes, mesh)) for d, axes in time_dims(sharding, mesh).items()]
    terms = time_terms(sharding, mesh)
    by_reduction = {each: tuple(a for r, a in terms if r == each) for each in sorted({r for r, _ in terms})}
    return [*stacks, *(ReduceLoop(axes, r, sharers(axes, mesh)) for r, axes in by_reduction.items())]


@dataclass(frozen=True)
class ReshardLowering:
    """Builder of the ops of a chain of steps."""

    builder: CallBuilder
    codec: ShardingCodec
    context: ir.Context

    def build(
        self,
        value: ir.Value,
        type_: TensorType,
        steps: list[Step | TimeStep],
        source: Sharding,
        loc: ir.Location,
        ip: ir.InsertionPoint,
        attributes: Mapping[str, ir.Attribute],
    ) -> ir.Value:
        """Build ``steps`` and return the value. ``type_`` is the global type; every op gets
        ``attributes``.
        """
        here, mesh = source, self.codec.mesh
        for step in steps:
            here = permuted(step, here, mesh) if isinstance(step, Permute) else step.apply(here)
            if isinstance(step, ToPartial) and step.reduction != "sum":
                continue  # equal terms of a maximum are the maximum
            local = self.builder.type(type_.with_shape(here.local_shape(type_.shape)))
            name, own = self._op(step)
            given = {**own, **attributes, "dist.shardings": self.codec.array([here])}
            value = ir.Operation.create(name, [local], [value], given, loc=loc, ip=ip).result
        return value

    def _op(self, step: Step | TimeStep) -> tuple[str, dict[str, ir.Attribute]]:
        match step:
            case reshard_steps.AllReduce(axes, reduction):
                return "dist.all_reduce", self._attributes(axes, reduction=reduction)
            case reshard_steps.AllGather(dim, axes):
                return "dist.all_gather", self._attributes(axes, dim=dim)
            case reshard_steps.ReduceScatter(dim, axes, reduction):
                return "dist.reduce_scatter", self._attributes(axes, dim=dim, reduction=reduction)
            case reshard_steps.AllToAll(split_dim, concat_dim, axes):
                return "dist.all_to_all", self._attributes(axes, split_dim=split_dim, concat_dim=concat_dim)
            case Permute(source, target):
                layouts = {"source": source, "target": target}
                return "dist.permute", {name: self.codec.write(s) for name, s in layouts.items()}
            case Slice(dim, axes):
                return "dist.slice", self._attributes(axes, dim=dim)
            case ToPartial(axes, _):
                return "dist.partial", self._attributes(axes)
            case StackLoop(dim, axes, _):
                return EDGE, self._attributes(axes, dim=dim, **{EDGE_KIND: "stack"})
            case ReduceLoop(axes, reduction, _):
                return EDGE, self._attributes(axes, **{EDGE_KIND: reduction})

    def _attributes(self, axes: Axes, **values: int | str) -> dict[str, ir.Attribute]:
        made: dict[str, ir.Attribute] = {"axes": self.codec.axes(axes)}
        for name, value in values.items():
            is_text = isinstance(value, str)
            made[name] = ir.StringAttr.get(value, self.context) if is_text else i64(value, self.context)
        return made
