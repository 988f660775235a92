"""A tensor of a kernel's body in another shape: ``tensor.expand_shape`` to the dims that both shapes are made of, then
``tensor.collapse_shape``. And a part of one: ``tensor.extract_slice``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from torch_mlir import ir

Shape = tuple[int, ...]


def reshape(tensor: ir.Value, shape: Sequence[int], ip: ir.InsertionPoint, loc: ir.Location) -> ir.Value:
    """``tensor`` with ``shape``, which has as many elements and cuts them at compatible places."""
    source, target = tuple(ir.RankedTensorType(tensor.type).shape), tuple(shape)
    fine = common_dims(source, target)
    return _collapse(_expand(tensor, source, fine, ip, loc), fine, target, ip, loc)


def common_dims(a: Shape, b: Shape) -> Shape:
    """The fewest dims that both shapes are merges of; dims of size 1 left out. Raises ValueError if there are none."""
    found: list[int] = []
    left, right = [n for n in a if n != 1][::-1], [n for n in b if n != 1][::-1]
    while left and right:
        x, y = left.pop(), right.pop()
        small, large = min(x, y), max(x, y)
        if gcd(small, large) != small:
            raise ValueError(f"shapes {a} and {b} do not fit")
        found.append(small)
        if large != small:
            (left if x == large else right).append(large // small)
    if left or right:
        raise ValueError(f"shapes {a} and {b} do not fit")
    return tuple(found)


def groups(fine: Shape, coarse: Shape) -> list[list[int]]:
    """For each dim of ``coarse`` the dims of ``fine`` that it is made of. Dims of size 1 of either may be left over."""
    found: list[list[int]] = []
    position = 0
    for size in coarse:
        members: list[int] = []
        product = 1
        while product != size:
            product *= fine[position]
            members.append(position)
            position += 1
        found.append(members)
    return found


def _expand(tensor: ir.Value, source: Shape, fine: Shape, ip: ir.InsertionPoint, loc: ir.Location) -> ir.Value:
    """Dims of size 1 go first, so that each remaining dim is split into its parts."""
    plain = tuple(n for n in source if n != 1)
    tensor = _drop_ones(tensor, source, plain, ip, loc)
    if plain == fine:
        return tensor
    return _reassociate("tensor.expand_shape", tensor, fine, groups(fine, plain), ip, loc)


def _collapse(tensor: ir.Value, fine: Shape, target: Shape, ip: ir.InsertionPoint, loc: ir.Location) -> ir.Value:
    plain = tuple(n for n in target if n != 1)
    if plain != fine:
        tensor = _reassociate("tensor.collapse_shape", tensor, plain, groups(fine, plain), ip, loc)
    return _add_ones(tensor, plain, target, ip, loc)


def _drop_ones(tensor: ir.Value, source: Shape, plain: Shape, ip: ir.InsertionPoint, loc: ir.Location) -> ir.Value:
    if source == plain:
        return tensor
    return _reassociate("tensor.collapse_shape", tensor, plain, _with_ones(source), ip, loc)


def _add_ones(tensor: ir.Value, plain: Shape, target: Shape, ip: ir.InsertionPoint, loc: ir.Location) -> ir.Value:
    if plain == target:
        return tensor
    return _reassociate("tensor.expand_shape", tensor, target, _with_ones(target), ip, loc)


def _with_ones(shape: Shape) -> list[list[int]]:
    """For each dim larger than 1 itself and the dims of size 1 before it; those at the end go to the last one."""
    found: list[list[int]] = []
    waiting: list[int] = []
    for position, size in enumerate(shape):
        waiting.append(position)
        if size != 1:
            found.append(waiting)
            waiting = []
    if found:
        found[-1] += waiting
    return found


def cut_out(
    tensor: ir.Value, cut: Sequence[Sequence[int]], ip: ir.InsertionPoint, loc: ir.Location
) -> ir.Value:
    """The elements of each dim that ``cut`` names: the first, how many, and the step."""
    offsets, sizes, strides = (list(column) for column in zip(*cut, strict=True))
    element = ir.RankedTensorType(tensor.type).element_type
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(offsets, loc.context),
        "static_sizes": ir.DenseI64ArrayAttr.get(sizes, loc.context),
        "static_strides": ir.DenseI64ArrayAttr.get(strides, loc.context),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0], loc.context),
    }
    type_ = ir.RankedTensorType.get(sizes, element, loc=loc)
    return ir.Operation.create("tensor.extract_slice", [type_], [tensor], attributes, loc=loc, ip=ip).result


def _reassociate(
    name: str, tensor: ir.Value, shape: Shape, parts: list[list[int]], ip: ir.InsertionPoint, loc: ir.Location
) -> ir.Value:
    context = loc.context
    element = ir.RankedTensorType(tensor.type).element_type
    type_ = ir.RankedTensorType.get(list(shape), element, loc=loc)
    i64 = ir.IntegerType.get_signless(64, context)
    lists = [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, n) for n in part], context) for part in parts]
    attributes: dict[str, ir.Attribute] = {"reassociation": ir.ArrayAttr.get(lists, context)}
    if name == "tensor.expand_shape":
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape), context)
    return ir.Operation.create(name, [type_], [tensor], attributes, loc=loc, ip=ip).result
