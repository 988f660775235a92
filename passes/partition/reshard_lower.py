"""The ops that carry out one ``dist.reshard`` on a rank: collectives over space, and the edges of
time loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.reshard_steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    ToPartial,
)
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.passes.partition.reshard_plan import plan_reshard

EDGE = "builtin.unrealized_conversion_cast"
"""What stands for a value's way out of a time loop until the loop is formed (within ``dist-partition``)."""
EDGE_KIND = "dist.edge"
"""On an edge: ``stack``, or the reduction over iterations."""


@dataclass(frozen=True)
class EnterLoop:
    """Take the current iteration's block of ``dim``."""

    dim: int
    axes: Axes

    def apply(self, sharding: Sharding) -> Sharding:
        return _with_dim(sharding, self.dim, (*sharding.dims[self.dim], *self.axes))


@dataclass(frozen=True)
class StackLoop:
    """Put the blocks of all iterations together again along ``dim``, after the loop."""

    dim: int
    axes: Axes

    def apply(self, sharding: Sharding) -> Sharding:
        return _with_dim(sharding, self.dim, tuple(a for a in sharding.dims[self.dim] if a not in self.axes))


@dataclass(frozen=True)
class ReduceLoop:
    """Combine the terms of all iterations, carried through the loop."""

    axes: Axes
    reduction: str

    def apply(self, sharding: Sharding) -> Sharding:
        return sharding.with_partial(tuple(t for t in sharding.partial if t[1] not in self.axes))


TimeStep = EnterLoop | StackLoop | ReduceLoop


def _with_dim(sharding: Sharding, dim: int, axes: Axes) -> Sharding:
    return Sharding(tuple(axes if d == dim else old for d, old in enumerate(sharding.dims)), sharding.partial)


def plan_steps(
    source: Sharding, target: Sharding, shape: tuple[int, ...], mesh: Mesh, *, reduce_first: bool = False
) -> list[Step | TimeStep]:
    """The chain from ``source`` to ``target``, loop edges included.

    Terms of iterations are summed on each device before devices talk (one collective after the loop); with
    ``reduce_first`` the devices talk in every iteration, so that what is carried through the loop is already
    cut.
    """
    if _time_part(source, mesh) == _time_part(target, mesh):
        return list(_space_steps(source, target, shape, mesh))
    steps: list[Step | TimeStep] = []
    here = source
    if reduce_first and _has_time(source, mesh):
        inside = _join_time(_space_part(target, mesh), source, mesh)
        steps += _space_steps(here, inside, shape, mesh)
        here = inside
    for step in _exits(here, mesh):
        steps.append(step)
        here = step.apply(here)
    entry = _space_part(target, mesh)
    steps += _space_steps(here, entry, shape, mesh)
    steps += [EnterLoop(d, axes) for d, axes in _time_dims(target, mesh)]
    return steps


def _space_steps(source: Sharding, target: Sharding, shape: tuple[int, ...], mesh: Mesh) -> tuple[Step, ...]:
    """Collectives between two layouts with the same time part."""
    per_iteration = list(shape)
    for d, axes in _time_dims(source, mesh):
        for axis in axes:
            per_iteration[d] //= axis.size
    return plan_reshard(_space_part(source, mesh), _space_part(target, mesh), tuple(per_iteration), mesh)


def _space_part(sharding: Sharding, mesh: Mesh) -> Sharding:
    keep = lambda axes: tuple(a for a in axes if not mesh.is_time(a))  # noqa: E731
    return Sharding(
        tuple(keep(d) for d in sharding.dims), tuple(t for t in sharding.partial if not mesh.is_time(t[1]))
    )


def _time_part(sharding: Sharding, mesh: Mesh) -> tuple[object, ...]:
    return (tuple(_time_dims(sharding, mesh)), tuple(t for t in sharding.partial if mesh.is_time(t[1])))


def _has_time(sharding: Sharding, mesh: Mesh) -> bool:
    return _time_part(sharding, mesh) != ((), ())


def _time_dims(sharding: Sharding, mesh: Mesh) -> list[tuple[int, Axes]]:
    cut = [(d, tuple(a for a in axes if mesh.is_time(a))) for d, axes in enumerate(sharding.dims)]
    return [(d, axes) for d, axes in cut if axes]


def _join_time(space: Sharding, like: Sharding, mesh: Mesh) -> Sharding:
    """``space`` with the time axes of ``like``."""
    cut = dict(_time_dims(like, mesh))
    dims = tuple((*axes, *cut.get(d, ())) for d, axes in enumerate(space.dims))
    return Sharding(dims, (*space.partial, *(t for t in like.partial if mesh.is_time(t[1]))))


def _exits(sharding: Sharding, mesh: Mesh) -> list[TimeStep]:
    steps: list[TimeStep] = [StackLoop(d, axes) for d, axes in _time_dims(sharding, mesh)]
    reductions = sorted({r for r, a in sharding.partial if mesh.is_time(a)})
    for reduction in reductions:
        axes = tuple(a for r, a in sharding.partial if r == reduction and mesh.is_time(a))
        steps.append(ReduceLoop(axes, reduction))
    return steps


class ReshardLowering:
    """Builds the ops of a chain of steps."""

    def __init__(self, builder: CallBuilder, codec: ShardingCodec, context: ir.Context) -> None:
        self._builder = builder
        self._codec = codec
        self._context = context
        self._i64 = ir.IntegerType.get_signless(64, context)

    def build(
        self,
        value: ir.Value,
        type_: TensorType,
        steps: list[Step | TimeStep],
        source: Sharding,
        loc: ir.Location,
        ip: ir.InsertionPoint,
        finish: Callable[[ir.Operation], None],
    ) -> ir.Value:
        """The value after ``steps``; ``type_`` is the global type, ``finish`` sees every op made."""
        here = source
        for step in steps:
            here = step.apply(here)
            if isinstance(step, ToPartial) and step.reduction != "sum":
                continue  # equal terms of a maximum are the maximum
            local = type_.with_shape(here.local_shape(type_.shape))
            name, attributes = self._op(step)
            op = ir.Operation.create(name, [self._builder.type(local)], [value], attributes, loc=loc, ip=ip)
            op.attributes["dist.shardings"] = self._codec.array([here])
            finish(op)
            value = op.result
        return value

    def _op(self, step: Step | TimeStep) -> tuple[str, dict[str, ir.Attribute]]:
        match step:
            case AllReduce(axes, reduction):
                return "dist.all_reduce", {"axes": self._axes(axes), "reduction": self._text(reduction)}
            case AllGather(dim, axes):
                return "dist.all_gather", {"dim": self._int(dim), "axes": self._axes(axes)}
            case ReduceScatter(dim, axes, reduction):
                return "dist.reduce_scatter", {
                    "dim": self._int(dim),
                    "axes": self._axes(axes),
                    "reduction": self._text(reduction),
                }
            case AllToAll(split_dim, concat_dim, axes):
                return "dist.all_to_all", {
                    "split_dim": self._int(split_dim),
                    "concat_dim": self._int(concat_dim),
                    "axes": self._axes(axes),
                }
            case Permute(source, target):
                return "dist.permute", {
                    "source": self._codec.write(source),
                    "target": self._codec.write(target),
                }
            case Slice(dim, axes) | EnterLoop(dim, axes):
                return "dist.slice", {"dim": self._int(dim), "axes": self._axes(axes)}
            case ToPartial(axes, _):
                return "dist.partial", {"axes": self._axes(axes)}
            case StackLoop(dim, axes):
                return EDGE, {EDGE_KIND: self._text("stack"), "dim": self._int(dim), "axes": self._axes(axes)}
            case ReduceLoop(axes, reduction):
                return EDGE, {EDGE_KIND: self._text(reduction), "axes": self._axes(axes)}

    def _axes(self, axes: tuple[Axis, ...]) -> ir.ArrayAttr:
        return self._codec.axes(axes)

    def _int(self, value: int) -> ir.IntegerAttr:
        return ir.IntegerAttr.get(self._i64, value)

    def _text(self, value: str) -> ir.StringAttr:
        return ir.StringAttr.get(value, self._context)
