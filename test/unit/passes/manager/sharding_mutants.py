"""Mutants of shardings: on the edges of a step and on the results of its ops, at level 2 or 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.check import check_sharding
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import REDUCTIONS, Sharding, ShardingCodec
from shardc.passes.manager.attributes import edge_attributes, set_edge_attributes
from shardc.passes.manager.program import find_function

TERMS = "terms"
"""The kind of mutants that change of a sharding what it says of partial terms."""


@dataclass(frozen=True)
class Mutant:
    """A change of a module: ``apply`` makes it in a copy of the module for which it was made.

    ``undo`` takes it back, where only attributes changed.
    """

    kind: str
    place: str
    apply: Callable[[ir.Module], None]
    undo: Callable[[ir.Module], None] | None = None


def all_ops(module: ir.Module) -> list[ir.Operation]:
    """The ops of the step in order, those in regions after the op that they are in."""
    function = find_function(module)
    assert function is not None
    return list(_inside(function))


def _inside(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from _inside(view.operation)


def names(ops: Sequence[ir.Operation]) -> list[str]:
    """What to call each op: its name, and which of that name it is. Other ops may come and go."""
    seen: Counter[str] = Counter()
    found = []
    for op in ops:
        found.append(f"{op.name} {seen[op.name]}")
        seen[op.name] += 1
    return found


def sharding_mutants(module: ir.Module) -> Iterator[Mutant]:
    """Each sharding of the step changed, in each of the ways of :func:`changed`."""
    mesh = read_mesh(module)
    assert mesh is not None
    codec = ShardingCodec(module.context, mesh)
    for which in ("arg_attrs", "res_attrs"):
        for position, row in enumerate(_rows(module, which)):
            sharding, shape = codec.read(row["dist.sharding"]), _edge_shape(module, which, position, row)
            for kind, other in changed(sharding, shape, mesh):
                place = f"{which}[{position}]: {sharding} to {other}"
                back = _edge_setter(which, position, sharding)
                yield Mutant(kind, place, _edge_setter(which, position, other), back)
    ops = all_ops(module)
    for number, (op, name) in enumerate(zip(ops, names(ops), strict=True)):
        for i, attribute in enumerate(op.attributes.get("dist.shardings") or ()):
            type_ = read_type(op.results[i].type)
            if type_ is None:
                continue
            sharding = codec.read(attribute)
            for kind, other in changed(sharding, type_.shape, mesh):
                place = f"{name}#{i}: {sharding} to {other}"
                yield Mutant(
                    kind, place, _result_setter(number, i, other), _result_setter(number, i, sharding)
                )


def changed(sharding: Sharding, shape: tuple[int, ...], mesh: Mesh) -> Iterator[tuple[str, Sharding]]:
    """(kind, sharding) of all that is legal on ``mesh`` and differs from ``sharding`` by one small change."""
    found = [*_terms_changed(sharding, mesh), *_dims_changed(sharding, mesh)]
    for kind, other in dict.fromkeys(found):
        is_legal = check_sharding(other, len(shape), mesh) is None and (kind == TERMS or other.divides(shape))
        if is_legal and other.normal() != sharding.normal():
            yield kind, other


def _free(sharding: Sharding, mesh: Mesh) -> list[Axis]:
    whole = [mesh.whole(axis.name) for axis in mesh.axes]
    return [axis for axis in whole if not any(axis.overlaps(used) for used in sharding.used)]


def _terms_changed(sharding: Sharding, mesh: Mesh) -> Iterator[tuple[str, Sharding]]:
    terms, free = sharding.partial, _free(sharding, mesh)
    for axis in free:
        yield TERMS, sharding.with_partial((*terms, (terms[0][0] if terms else "sum", axis)))
        yield TERMS, sharding.with_partial((*terms, (terms[0][0] if terms else "max", axis)))
    for term in terms:
        rest = tuple(t for t in terms if t != term)
        yield TERMS, sharding.with_partial(rest)
        for axis in free:
            yield TERMS, sharding.with_partial((*rest, (term[0], axis)))
        for dim in range(len(sharding.dims)):
            yield TERMS, _with(sharding.with_partial(rest), dim, (*sharding.dims[dim], term[1]))
    for kind in REDUCTIONS if terms else ():
        yield TERMS, sharding.with_partial(tuple((kind, axis) for _, axis in terms))


def _dims_changed(sharding: Sharding, mesh: Mesh) -> Iterator[tuple[str, Sharding]]:
    dims = range(len(sharding.dims))
    for dim in dims:
        axes = sharding.dims[dim]
        for axis in _free(sharding, mesh):
            yield "axis added", _with(sharding, dim, (*axes, axis))
        if len(axes) > 1:
            yield "axes swapped", _with(sharding, dim, axes[::-1])
        for n, axis in enumerate(axes):
            without = _with(sharding, dim, axes[:n] + axes[n + 1 :])
            yield "axis dropped", without
            yield TERMS, without.with_partial((*sharding.partial, ("sum", axis)))
            for other in dims:
                if other != dim:
                    yield "axis moved", _with(without, other, (*sharding.dims[other], axis))


def _with(sharding: Sharding, dim: int, axes: tuple[Axis, ...]) -> Sharding:
    return replace(sharding, dims=(*sharding.dims[:dim], axes, *sharding.dims[dim + 1 :]))


def _rows(module: ir.Module, which: str) -> list[dict[str, ir.Attribute]]:
    function = find_function(module)
    assert function is not None
    return [edge_attributes(function, which, i) for i in range(len(function.attributes[which]))]


def _edge_shape(
    module: ir.Module, which: str, position: int, row: dict[str, ir.Attribute]
) -> tuple[int, ...]:
    """The global shape of an argument or a result, padded."""
    if "dist.padded" in row:
        return tuple(ir.DenseI64ArrayAttr(row["dist.padded"]))
    type_ = read_type(ir.TypeAttr(row["dist.global_type"]).value)
    assert type_ is not None
    return type_.shape


def _codec(module: ir.Module) -> ShardingCodec:
    mesh = read_mesh(module)
    assert mesh is not None
    return ShardingCodec(module.context, mesh)


def _edge_setter(which: str, position: int, sharding: Sharding) -> Callable[[ir.Module], None]:
    def apply(module: ir.Module) -> None:
        rows, function = _rows(module, which), find_function(module)
        assert function is not None
        rows[position]["dist.sharding"] = _codec(module).write(sharding)
        set_edge_attributes(function, which, rows)

    return apply


def _result_setter(number: int, position: int, sharding: Sharding) -> Callable[[ir.Module], None]:
    """Of a reshard both its target and what it says of its result change."""

    def apply(module: ir.Module) -> None:
        op, attribute = all_ops(module)[number], _codec(module).write(sharding)
        shardings = list(op.attributes["dist.shardings"])
        shardings[position] = attribute
        op.attributes["dist.shardings"] = ir.ArrayAttr.get(shardings, module.context)
        if op.name == "dist.reshard":
            op.attributes["sharding"] = attribute

    return apply
