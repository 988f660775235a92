"""Mutants of ops: collectives, slices, offsets, loops and calls of a step, at level 2 or 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from sharding_mutants import Mutant, all_ops, names
from torch_mlir import ir

from shardc.dialects.aten.call import is_constant
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import REDUCTIONS, Axes, ShardingCodec
from shardc.passes.manager.attributes import i64

Change = Callable[[ir.Operation], None]

_COMMUTE = ("add", "mul", "maximum", "minimum", "logical_or", "logical_and", "eq", "ne")
_COMBINING = {"torch.aten.add.Tensor", "torch.aten.maximum", "torch.aten.minimum"}


def op_mutants(module: ir.Module) -> Iterator[Mutant]:
    """Each op of the step changed in each of the ways of this file."""
    mesh = read_mesh(module)
    assert mesh is not None
    codec = ShardingCodec(module.context, mesh)
    ops = all_ops(module)
    called = names(ops)
    for number, op in enumerate(ops):
        for kind, what, change in _changes(op, mesh, codec):
            yield Mutant(kind, f"{called[number]}: {what}", _at(number, change))
    yield from _crossed(ops, called)


def _at(number: int, change: Change) -> Callable[[ir.Module], None]:
    def apply(module: ir.Module) -> None:
        change(all_ops(module)[number])

    return apply


def _changes(op: ir.Operation, mesh: Mesh, codec: ShardingCodec) -> Iterator[tuple[str, str, Change]]:
    """(kind, what becomes of the op, the change)."""
    if "axes" in op.attributes and op.name.startswith("dist."):
        axes = codec.read_axes(op.attributes["axes"])
        for other in _other_axes(axes, mesh):
            text = ", ".join(map(str, other))
            yield "other axes", f"axes {text}", _setting("axes", codec.axes(other))
    for name in ("dim", "split_dim", "concat_dim"):
        if name in op.attributes and op.name.startswith("dist."):
            yield from _other_dims(op, name)
    if "reduction" in op.attributes:
        for kind in REDUCTIONS:
            if kind != op.attributes["reduction"].value:
                attribute = ir.StringAttr.get(kind, op.context)
                yield "other reduction", kind, _setting("reduction", attribute)
    if op.name == "dist.permute":
        yield "other way", "source and target change places", _swap_layouts
    if op.name in ("dist.all_reduce", "dist.reshard", "dist.partial", "dist.permute", "dist.all_to_all"):
        yield "dropped", "its operand stands for it", _drop
    if op.name == "dist.reduce_scatter":
        yield "dropped", "a slice stands for it", _slice_instead
    if op.name == "dist.slice":
        yield "dropped", "another part stands for it", _first_part
    if op.name == "dist.offset":
        for name in ("extent", "scale", "base"):
            value = i64(op.attributes[name].value + 1, op.context)
            yield "other offset", f"{name} is one more", _setting(name, value)
    yield from _loop_changes(op)
    if op.name.startswith("torch.aten.") and not is_constant(op):
        yield from _call_changes(op)


def _other_axes(axes: Axes, mesh: Mesh) -> list[Axes]:
    """Of as many ways, one less, one more, in another order."""
    whole = [mesh.whole(a.name) for a in mesh.axes if a.kind == "space" or mesh.is_time(axes[0])]
    free = [axis for axis in whole if not any(axis.overlaps(used) for used in axes)]
    found = [(*axes[:n], axis, *axes[n + 1 :]) for n in range(len(axes)) for axis in free]
    found += [axes[:n] + axes[n + 1 :] for n in range(len(axes)) if len(axes) > 1]
    found += [(*axes, axis) for axis in free]
    if len(axes) > 1:
        found.append(axes[::-1])
    return found


def _other_dims(op: ir.Operation, name: str) -> Iterator[tuple[str, str, Change]]:
    type_ = read_type(op.operands[0].type)
    assert type_ is not None
    for dim in range(len(type_.shape)):
        if dim != op.attributes[name].value:
            yield "other dim", f"{name} {dim}", _setting(name, i64(dim, op.context))


def _setting(name: str, value: ir.Attribute) -> Change:
    def change(op: ir.Operation) -> None:
        op.attributes[name] = value

    return change


def _swap_layouts(op: ir.Operation) -> None:
    op.attributes["source"], op.attributes["target"] = op.attributes["target"], op.attributes["source"]


def _drop(op: ir.Operation) -> None:
    op.results[0].replace_all_uses_with(op.operands[0])
    op.erase()


def _slice_instead(op: ir.Operation) -> None:
    given = {name: op.attributes[name] for name in ("dim", "axes", "dist.shardings") if name in op.attributes}
    made = ir.Operation.create(
        "dist.slice", [op.results[0].type], [op.operands[0]], given, loc=op.location, ip=ir.InsertionPoint(op)
    )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _first_part(op: ir.Operation) -> None:
    """The first block stands for the device's own, or the iteration's."""
    size = read_type(op.results[0].type)
    assert size is not None
    dim = op.attributes["dim"].value
    numbers = [
        ir.Operation.create(
            "torch.constant.int",
            [ir.Type.parse("!torch.int", op.context)],
            [],
            {"value": i64(number, op.context)},
            loc=op.location,
            ip=ir.InsertionPoint(op),
        ).result
        for number in (dim, 0, size.shape[dim], 1)
    ]
    made = ir.Operation.create(
        "torch.aten.slice.Tensor",
        [op.results[0].type],
        [op.operands[0], *numbers],
        {"dist.shardings": op.attributes["dist.shardings"]} if "dist.shardings" in op.attributes else {},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _loop_changes(op: ir.Operation) -> Iterator[tuple[str, str, Change]]:
    parent = op.parent
    if op.name == "dist.loop":
        for i, dim in enumerate(op.attributes["stack_dims"]):
            yield "other stack", f"value {i}", _stacking(i, 1 - min(ir.IntegerAttr(dim).value, 1))
    if op.name == "dist.yield":
        for n, value in enumerate(op.operands):
            members = value.owner.operation
            for i, j in _same_type(list(members.operands)):
                yield "other yield", f"{i} and {j} of group {n} change places", _swapping(n, i, j)
    if parent is not None and parent.name == "dist.loop" and op.name in _COMBINING and _feeds_yield(op):
        if op.name != "torch.aten.maximum":
            yield "other sum", "terms combine by maximum", _maximum
        yield "other sum", "the last term stands for all", _last_term
    if _starts_loop(op):
        yield "other start", "one more", _start_from_one


def _stacking(index: int, dim: int) -> Change:
    def change(op: ir.Operation) -> None:
        dims = list(op.attributes["stack_dims"])
        dims[index] = i64(dim, op.context)
        op.attributes["stack_dims"] = ir.ArrayAttr.get(dims, op.context)

    return change


def _same_type(values: Sequence[ir.Value]) -> Iterator[tuple[int, int]]:
    for (i, one), (j, other) in pairwise(enumerate(values)):
        if one.type == other.type and one != other:
            yield i, j


def _swapping(group: int, i: int, j: int) -> Change:
    def change(op: ir.Operation) -> None:
        _swap(op.operands[group].owner.operation, i, j)

    return change


def _swap(op: ir.Operation, i: int, j: int) -> None:
    first, second = op.operands[i], op.operands[j]
    op.operands[i], op.operands[j] = second, first


def _feeds_yield(op: ir.Operation) -> bool:
    """Whether an op combines a carried value with a term."""
    users = [use.owner.operation for use in op.results[0].uses]
    first = op.operands[0].owner
    return isinstance(first, ir.Block) and any(u.name == "torch.prim.TupleConstruct" for u in users)


def _maximum(op: ir.Operation) -> None:
    made = ir.Operation.create(
        "torch.aten.maximum",
        [op.results[0].type],
        list(op.operands)[:2],
        dict(op.attributes.items()),
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _last_term(op: ir.Operation) -> None:
    op.results[0].replace_all_uses_with(op.operands[1])
    op.erase()


def _starts_loop(op: ir.Operation) -> bool:
    """Whether an op makes what a loop's sum starts from."""
    if op.name != "torch.aten.full":
        return False
    groups = [use.owner.operation for use in op.results[0].uses]
    return any(
        use.owner.operation.name == "dist.loop"
        and use.owner.operation.attributes["operandSegmentSizes"][0]
        and use.operand_number == 0
        for group in groups
        if group.name == "torch.prim.TupleConstruct"
        for use in group.results[0].uses
    )


def _start_from_one(op: ir.Operation) -> None:
    old = op.operands[1].owner.operation
    value = old.attributes["value"]
    is_float = old.name == "torch.constant.float"
    one = ir.FloatAttr.get(value.type, 1.0, loc=op.location) if is_float else i64(1, op.context)
    types = [op.operands[1].type]
    made = ir.Operation.create(old.name, types, [], {"value": one}, loc=op.location, ip=ir.InsertionPoint(op))
    op.operands[1] = made.result


def _call_changes(op: ir.Operation) -> Iterator[tuple[str, str, Change]]:
    """Operands of one type that change places, where the order matters."""
    name = op.name.removeprefix("torch.aten.")
    if not name.startswith(_COMMUTE):
        tensors = [(i, v) for i, v in enumerate(op.operands) if read_type(v.type) is not None]
        for (i, one), (j, other) in pairwise(tensors):
            if one.type == other.type and one != other:
                yield "operands swapped", f"{i} and {j}", lambda op, i=i, j=j: _swap(op, i, j)


def _crossed(ops: Sequence[ir.Operation], called: Sequence[str]) -> Iterator[Mutant]:
    """Two ops of the dialect in a row, of one name and type, read each other's operand."""
    numbers = [n for n, op in enumerate(ops) if op.name.startswith("dist.") and len(op.operands) == 1]
    for n, later in enumerate(numbers):
        for earlier in numbers[max(n - 4, 0) : n]:
            one, other = ops[earlier], ops[later]
            fits = one.name == other.name and one.operands[0].type == other.operands[0].type
            if fits and one.operands[0] != other.operands[0] and one.parent == other.parent:
                place = f"{called[later]}: reads the operand of {called[earlier]}"
                yield Mutant("other operand", place, _reading(later, earlier))
                break


def _reading(later: int, earlier: int) -> Callable[[ir.Module], None]:
    def apply(module: ir.Module) -> None:
        ops = all_ops(module)
        ops[later].operands[0] = ops[earlier].operands[0]

    return apply
