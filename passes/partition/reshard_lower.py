"""The ops that carry out one ``dist.reshard`` on a rank: collectives over space, and edges of time loops."""

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
from shardc.dialects.dist.time_part import join_time, sharers, space_part, time_dims, time_terms
from shardc.passes.manager.attributes import i64
from shardc.passes.partition.reshard_plan import plan_reshard

EDGE = "builtin.unrealized_conversion_cast"
"""What stands for a value's way out of a time loop until the loop is formed (within ``dist-partition``)."""
EDGE_KIND = "dist.edge"
"""On an edge: ``stack``, or the reduction over iterations."""


@dataclass(frozen=True)
class StackLoop:
    """Put the blocks of all iterations together again along ``dim``, after the loop.

    ``sharers``: the devices' axes along which iterations are shared out. A rank has zeros in the place of the
    others' blocks, so that the whole is the sum of what ranks have.
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
    """Combine the terms of all iterations, carried through the loop.

    ``sharers``: the devices' axes along which iterations are shared out, whose ranks then have terms of it.
    """

    axes: Axes
    reduction: str
    sharers: Axes = ()

    def apply(self, sharding: Sharding) -> Sharding:
        rest = tuple(t for t in sharding.partial if t[1] not in self.axes)
        return sharding.with_partial((*rest, *((self.reduction, a) for a in self.sharers)))


TimeStep = StackLoop | ReduceLoop
"""Ways out of a loop; the way in is a Slice over time axes."""


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
    """The chain from ``source`` to ``target``, loop edges included: the cheapest over ``links``.

    Terms of iterations are summed on each device before devices communicate (one collective after the loop).
    With ``reduce_first`` they communicate in every iteration, so that what the loop carries is cut already.

    Within an iteration devices trade only what is inside of the loop's axis: of a dim cut by
    ``[data, micro, tensor]`` what ``tensor`` cuts. A value leaves and enters a loop with that axis innermost.
    """
    terms = time_terms(source, mesh)
    over_space = partial(_space_steps, shape=shape, mesh=mesh, links=links, element_bytes=element_bytes)
    if _heads(source, mesh) == _heads(target, mesh) and terms == time_terms(target, mesh):
        return list(over_space(source, target))
    steps: list[Step | TimeStep] = []
    here, outside = _time_innermost(source, mesh), _time_innermost(target, mesh)
    steps += over_space(source, here)
    entry = space_part(outside, mesh)
    inside = join_time(entry, here, mesh)
    reduce_first = reduce_first and not mesh.shares  # ranks run their iterations by themselves
    if reduce_first and (terms or time_dims(source, mesh)) and _heads(here, mesh) == _heads(inside, mesh):
        steps += over_space(here, inside)
        here = inside
    for step in _exits(here, mesh):
        steps.append(step)
        here = step.apply(here)
    steps += over_space(here, entry)
    steps += [Slice(d, axes) for d, axes in time_dims(target, mesh).items()]
    steps += over_space(outside, target)
    return steps


def _heads(sharding: Sharding, mesh: Mesh) -> dict[int, Axes]:
    """Dim -> its axes up to the last that is a loop's, for the dims that loops cut."""
    times = time_dims(sharding, mesh)
    return {d: sharding.dims[d][: sharding.dims[d].index(axes[-1]) + 1] for d, axes in times.items()}


def _time_innermost(sharding: Sharding, mesh: Mesh) -> Sharding:
    """``sharding`` without what is cut inside of a loop's axis."""
    heads = _heads(sharding, mesh)
    return Sharding(tuple(heads.get(d, axes) for d, axes in enumerate(sharding.dims)), sharding.partial)


def _space_steps(
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    links: LinkModel,
    element_bytes: int,
) -> tuple[Step, ...]:
    """Collectives between two layouts with the same time part."""
    cut = time_dims(source, mesh)
    per_iteration = tuple(n // prod(a.size for a in cut.get(d, ())) for d, n in enumerate(shape))
    layouts = space_part(source, mesh), space_part(target, mesh)
    return plan_reshard(*layouts, per_iteration, mesh, links=links, element_bytes=element_bytes)


def permuted(step: Permute, here: Sharding, mesh: Mesh) -> Sharding:
    """What a permutation within an iteration makes of ``here``. Its own layouts have no axes of loops."""
    made, heads = step.apply(space_part(here, mesh)), _heads(here, mesh)
    dims = list(made.dims)
    for d, head in heads.items():
        outer = [axis for axis in head if not mesh.is_time(axis)]
        assert list(dims[d][: len(outer)]) == outer, "outside of a loop's axis nothing moves in the loop"
        dims[d] = (*head, *dims[d][len(outer) :])
    return Sharding(tuple(dims), (*made.partial, *time_terms(here, mesh)))


def _exits(sharding: Sharding, mesh: Mesh) -> list[TimeStep]:
    stacks = [StackLoop(d, axes, sharers(axes, mesh)) for d, axes in time_dims(sharding, mesh).items()]
    terms = time_terms(sharding, mesh)
    by_reduction = {each: tuple(a for r, a in terms if r == each) for each in sorted({r for r, _ in terms})}
    return [*stacks, *(ReduceLoop(axes, r, sharers(axes, mesh)) for r, axes in by_reduction.items())]


@dataclass(frozen=True)
class ReshardLowering:
    """Builds the ops of a chain of steps."""

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
        """The value after ``steps``; ``type_`` is the global type, ``attributes`` go on every op made."""
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
