"""Flat kernels: pointwise kernels whose machine code does not depend on the number of elements.

An optimizer's update of a parameter is such a kernel. Equal flat kernels have one name, are compiled once,
and can be called for all parameters at once.
"""

from __future__ import annotations

from math import prod

from torch_mlir import ir

from shardc.dialects.kern.generic import GENERIC, GenericLoops
from shardc.dialects.kern.kernel import integer_count, kernel_body, operand_types, result_types
from shardc.dialects.kern.types import element_type, read_builtin
from shardc.dialects.kern.yield_op import PACK

FLAT = "kern.flat"
SIZE = 1 << 20
"""Number of elements in the text of a flattened body, as a placeholder for any number."""

_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


def is_flat(kernel: ir.Operation) -> bool:
    """Return whether every tensor of the kernel has the same elements in the same order, or is 0-d.

    Kernels with symbolic sizes are not flat: they take integers, or read parts of tensors with such sizes.
    """
    types = [*operand_types(kernel), *result_types(kernel)]
    if integer_count(kernel) or not all(t.is_static for t in types):
        return False
    counts = {prod(t.shape) for t in types if t.shape}
    if len(counts) != 1:
        return False
    (count,) = counts
    _, ops, _ = kernel_body(kernel)
    return all(_is_elementwise(op, count) for op in ops)


def element_count(kernel: ir.Operation) -> int:
    """Return the number of elements of the tensors of a flat kernel that are not 0-d."""
    return next(prod(t.shape) for t in (*operand_types(kernel), *result_types(kernel)) if t.shape)


def _is_elementwise(op: ir.Operation, count: int) -> bool:
    tensors = [t for t in (read_builtin(v.type) for v in (*op.operands, *op.results)) if t is not None]
    if any(t.shape and prod(t.shape) != count for t in tensors):
        return False
    if op.name == GENERIC:
        loops = GenericLoops(op)
        inner = {o.name for o in loops.body_ops}
        in_order = all(map_ in ((), tuple(range(len(loops.reduces)))) for map_ in loops.maps)
        return in_order and not any(loops.reduces) and inner.isdisjoint(("linalg.index", "tensor.extract"))
    if op.name in _RESHAPES:
        return all(t.shape for t in tensors)
    return op.name in ("tensor.empty", "linalg.fill", "arith.constant")


def flatten(block: ir.Block) -> None:
    """Rewrite the body of a flat kernel to tensors of :data:`SIZE` elements in one dim."""
    for argument in block.arguments:
        _set_type(argument)
    for view in list(block.operations):
        op = view.operation
        if op.name in _RESHAPES:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
            continue
        for result in op.results:
            _set_type(result)
        if op.name == PACK:
            op.results[0].set_type(ir.TupleType.get_tuple([v.type for v in op.operands], op.context))
        elif op.name == GENERIC:
            _flatten_loops(op)
        elif op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
            scalar = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            op.attributes["value"] = ir.DenseElementsAttr.get_splat(op.results[0].type, scalar)


def _set_type(value: ir.Value) -> None:
    type_ = read_builtin(value.type)
    if type_ is not None and type_.shape:
        value.set_type(ir.RankedTensorType.get([SIZE], element_type(type_.dtype, value.type.context)))


def _flatten_loops(op: ir.Operation) -> None:
    maps = GenericLoops(op).maps
    if not any(maps):
        return
    context = op.context
    each, one = ir.AffineMap.get_identity(1, context), ir.AffineMap.get(1, 0, [], context)
    flat = [ir.AffineMapAttr.get(each if map_ else one) for map_ in maps]
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(flat, context)
    op.attributes["iterator_types"] = ir.ArrayAttr.get(list(op.attributes["iterator_types"])[:1], context)


def body_text(kernel: ir.Operation) -> str:
    """Return a text that is equal for kernels with equal bodies; for flat ones also if their sizes differ."""
    if FLAT not in kernel.attributes:
        return _printed(kernel)
    copy = kernel.clone(ip=ir.InsertionPoint(kernel))
    try:
        with kernel.location:
            flatten(copy.regions[0].blocks[0])
        return _printed(copy)
    finally:
        copy.erase()


def _printed(kernel: ir.Operation) -> str:
    """Print only the body, so that its values are numbered from 0 and nothing else is verified."""
    text = kernel.get_asm(assume_verified=True, use_local_scope=True)
    return text[text.index("\n") : text.rindex("\n")]
