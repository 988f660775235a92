"""Reshapes and slices of tensors in a kernel's body: ``tensor.expand_shape``, ``collapse_shape`` and
slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_mlir import ir

from shardc.dialects.dist.build import i64
from shardc.dialects.kern.size import AnySize, SizeNotKnown, quotient

Shape = tuple[AnySize, ...]
Index = Callable[[AnySize], ir.Value]
"""Returns a symbolic size as a value of type ``index``."""
DYNAMIC = ir.ShapedType.get_dynamic_size()


def common_dims(a: Shape, b: Shape) -> Shape:
    """Return the fewest dims, none of size 1, from which both shapes can be merged.

    Raises ValueError for incompatible shapes, and SizeNotKnown for symbolic shapes that are compatible only
    in some calls.
    """
    found: list[AnySize] = []
    left, right = [n for n in a if n != 1][::-1], [n for n in b if n != 1][::-1]
    while left and right:
        large, small, side = left.pop(), right.pop(), left
        rest = quotient(large, small)
        if rest is None:
            large, small, side = small, large, right
            rest = quotient(large, small)
        if rest is None:
            raise _misfit(a, b)
        found.append(small)
        if rest != 1:
            side.append(rest)
    if left or right:
        raise _misfit(a, b)
    return tuple(found)


def _misfit(a: Shape, b: Shape) -> ValueError | SizeNotKnown:
    if dynamic((*a, *b)):
        return SizeNotKnown(f"needs that shapes {a} and {b} have as many elements, which no symbol tells")
    return ValueError(f"shapes {a} and {b} do not fit")


def groups(fine: Shape, coarse: Shape) -> list[list[int]]:
    """Return, for each dim of ``coarse``, the dims of ``fine`` in it. Dims of size 1 may be left over."""
    found: list[list[int]] = []
    position = 0
    for size in coarse:
        members: list[int] = []
        product: AnySize = 1
        while product != size:
            product *= fine[position]
            members.append(position)
            position += 1
        found.append(members)
    return found


def dynamic(shape: Shape) -> list[AnySize]:
    """Return the symbolic sizes of ``shape``."""
    return [n for n in shape if not isinstance(n, int)]


def static(shape: Shape) -> list[int]:
    """Return ``shape`` in the form of MLIR's types and attributes."""
    return [n if isinstance(n, int) else DYNAMIC for n in shape]


class Reshaper:
    """Builder of reshapes and slices at ``ip``. ``index``: function that returns a symbolic size's value."""

    def __init__(self, index: Index, ip: ir.InsertionPoint, loc: ir.Location) -> None:
        self._index, self._ip, self._loc = index, ip, loc

    def reshape(self, tensor: ir.Value, source: Shape, target: Shape) -> ir.Value:
        """Return ``tensor`` of shape ``source`` in shape ``target``, of as many elements."""
        fine = common_dims(source, target)
        return self._collapse(self._expand(tensor, source, fine), fine, target)

    def cut_out(self, tensor: ir.Value, cut: Sequence[tuple[int, AnySize, int]]) -> ir.Value:
        """Return a slice of a tensor. ``cut``: for each dim, the first element, the count and the step."""
        offsets, sizes, strides = (tuple(column) for column in zip(*cut, strict=True))
        element, context = ir.RankedTensorType(tensor.type).element_type, self._loc.context
        more = [self._index(n) for n in dynamic(sizes)]
        attributes = {
            "static_offsets": ir.DenseI64ArrayAttr.get(list(offsets), context),
            "static_sizes": ir.DenseI64ArrayAttr.get(static(sizes), context),
            "static_strides": ir.DenseI64ArrayAttr.get(list(strides), context),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, len(more), 0], context),
        }
        type_ = ir.RankedTensorType.get(static(sizes), element, loc=self._loc)
        return self._op("tensor.extract_slice", type_, [tensor, *more], attributes)

    def _expand(self, tensor: ir.Value, source: Shape, fine: Shape) -> ir.Value:
        """Split dims into those of ``fine``, after removing dims of size 1."""
        plain = tuple(n for n in source if n != 1)
        if source != plain:
            tensor = self._reassociate("tensor.collapse_shape", tensor, plain, _with_ones(source))
        if plain == fine:
            return tensor
        return self._reassociate("tensor.expand_shape", tensor, fine, groups(fine, plain))

    def _collapse(self, tensor: ir.Value, fine: Shape, target: Shape) -> ir.Value:
        plain = tuple(n for n in target if n != 1)
        if plain != fine:
            tensor = self._reassociate("tensor.collapse_shape", tensor, plain, groups(fine, plain))
        if plain == target:
            return tensor
        return self._reassociate("tensor.expand_shape", tensor, target, _with_ones(target))

    def _reassociate(self, name: str, tensor: ir.Value, shape: Shape, parts: list[list[int]]) -> ir.Value:
        context = self._loc.context
        element = ir.RankedTensorType(tensor.type).element_type
        type_ = ir.RankedTensorType.get(static(shape), element, loc=self._loc)
        lists = [ir.ArrayAttr.get([i64(n, context) for n in part], context) for part in parts]
        attributes: dict[str, ir.Attribute] = {"reassociation": ir.ArrayAttr.get(lists, context)}
        more: list[ir.Value] = []
        if name == "tensor.expand_shape":
            attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(static(shape), context)
            more = [self._index(n) for n in dynamic(shape)]
        return self._op(name, type_, [tensor, *more], attributes)

    def _op(
        self, name: str, type_: ir.Type, operands: list[ir.Value], attributes: dict[str, ir.Attribute]
    ) -> ir.Value:
        return ir.Operation.create(name, [type_], operands, attributes, loc=self._loc, ip=self._ip).result


def _with_ones(shape: Shape) -> list[list[int]]:
    """Return groups of dims: each dim larger than 1 with the dims of size 1 before it.

    Dims of size 1 at the end are in the last group.
    """
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
