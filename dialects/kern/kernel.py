"""``kern.kernel``: a group of ops that runs as one generated kernel. Level 4."""

from collections.abc import Mapping, Sequence
from typing import Unpack

import torch
from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Region

from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.build import At, empty_body, i64, string
from shardc.dialects.dist.tuples import element_types, pack, tuple_type, unpack
from shardc.dialects.dist.verifier import (
    Illegal,
    LeftToMlir,
    Operand,
    RegionOp,
    Result,
    Site,
    tensor_type,
    tuple_elements,
)
from shardc.dialects.kern.body import check_body_op
from shardc.dialects.kern.config import config, read_config
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.size import AnySize, Symbol, read_shape, shape_map
from shardc.dialects.kern.types import ELEMENTS, builtin_type
from shardc.dialects.kern.yield_op import YieldOp, yielded_values

NAME = "kern.name"
IN_PLACE = "in_place"
SHAPES = "kern.shapes"
HINTS = "kern.hints"
CHECKS = "kern.checks"
TUNED = "kern.tuned"
INTEGER = "!torch.int"


class KernelOp(RegionOp, dialect=Kern, name="kernel", traits=[ir.IsIsolatedFromAboveTrait, ext.Pure]):
    """Computes its results from its operands with a body of ``linalg`` ops on tensors.

    Operands and results are tuples of value tensors; an empty operand tuple is left out. The body's arguments
    are builtin tensors with the operands' shapes and dtypes, in the same order; it yields builtin tensors for
    the results.

    If shapes have ``?``, integers follow the tensors among the operands, and are ``index`` arguments of the
    body. ``kern.shapes`` gives the shape of each tensor operand and result in terms of these integers, and
    ``kern.hints`` their values when the kernel was made. An integer may also be another number, such as the
    number of a random draw, so that kernels which differ only in it are compiled once.

    The body holds ``linalg.generic`` and ``linalg.fill``, ``tensor.empty``, expand_shape, collapse_shape and
    extract_slice, and ``arith`` and ``math``. Each dim of a generic's operand is indexed by its own loop.
    Slices keep all dims, and their offsets and strides are constants.

    ``kern.name`` names the kernel, ``config`` (optional) tiles it. ``in_place`` (optional) holds pairs of a
    result's and an operand's number: the result is written into the operand's memory. ``kern.checks``
    (optional) holds pairs of a result's number and a message. That result, an si64, is the smallest si64 if
    all indices are valid; else the call raises an IndexError with the message, in which ``{}`` is replaced by
    the result. ``kern.tuned`` (optional) describes how the ``config`` was found.

    ``%1 = "kern.kernel"(%0) ({
    ^bb0(%x: tensor<4x8xf32>, %w: tensor<8xf32>):
      %e = tensor.empty() : tensor<4x8xf32>
      %2 = linalg.generic {...} ins(%x, %w : ...) outs(%e : ...) {...} -> tensor<4x8xf32>
      %t = builtin.unrealized_conversion_cast %2 : tensor<4x8xf32> to tuple<tensor<4x8xf32>>
      "kern.yield"(%t) : (tuple<tensor<4x8xf32>>) -> ()
    }) {kern.name = "mul_0", config = #kern.config<{rows = 4 : i64}>}
    : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>``
    """

    body: Region
    outs: Result
    ins: Operand | None = None

    def check(self, site: Site) -> None:
        if len(site.op.results) != 1:
            raise LeftToMlir
        name = site.op.attributes[NAME] if site.has(NAME) else None
        if not isinstance(name, ir.StringAttr) or not name.value.isidentifier():
            raise Illegal(f"must have an identifier as its {NAME}, not {name}")
        if site.has("config"):
            read_config(site.op.attributes["config"])
        if site.has(IN_PLACE):
            _check_in_place(site)
        if site.has(CHECKS):
            _check_checks(site)
        for what, types in (("operand", operand_types(site.op)), ("result", result_types(site.op))):
            for number, type_ in enumerate(types):
                if type_.dtype not in ELEMENTS:
                    raise Illegal(f"{what} {number} is {type_}: kernels take no {type_.dtype}")
        types = [*operand_types(site.op), *result_types(site.op)]
        if integer_count(site.op) or not all(type_.is_static for type_ in types):
            _check_shapes(site, types)

    def check_body(self, site: Site) -> None:
        block, count = site.body(), integer_count(site.op)
        ops = [op.operation for op in block.operations]
        if not ops or ops[-1].name != YieldOp.OPERATION_NAME:
            raise Illegal("must end its body with kern.yield")
        arguments = list(block.arguments)
        numbers = [a for a in arguments if isinstance(a.type, ir.IndexType)]
        if len(numbers) != count or numbers != arguments[len(arguments) - count :]:
            raise Illegal(f"must have {count} body arguments of type index, after all others")
        _expect("body argument", operand_types(site.op), arguments[: len(arguments) - count])
        _expect("yielded value", result_types(site.op), yielded_values(ops[-1]))
        for op in ops[:-1]:
            check_body_op(op)


def _check_shapes(site: Site, types: list[TensorType]) -> None:
    count = integer_count(site.op)
    if not site.has(SHAPES) or not site.has(HINTS):
        raise Illegal(f"has sizes that its types do not give, so it must have {SHAPES} and {HINTS}")
    hints, maps = site.op.attributes[HINTS], site.op.attributes[SHAPES]
    if not isinstance(hints, ir.DenseI64ArrayAttr) or len(hints) != count:
        wanted = f"an array<i64> with a number for each of its {count} integers"
        raise Illegal(f"{HINTS} must be {wanted}, not {hints}")
    if not isinstance(maps, ir.ArrayAttr) or len(maps) != len(types):
        raise Illegal(f"{SHAPES} must have an affine map for each of its {len(types)} tensors, not {maps}")
    for type_, map_ in zip(types, maps, strict=True):
        try:
            shape = read_shape(map_, kernel_symbols(site.op))
        except (ValueError, IndexError):
            shape = ()
        if tuple(n if isinstance(n, int) else None for n in shape) != type_.shape:
            raise Illegal(f"{map_} in {SHAPES} must be the shape of {type_} in {count} symbols")


def _check_in_place(site: Site) -> None:
    numbers = site.op.attributes[IN_PLACE]
    if not isinstance(numbers, ir.DenseI64ArrayAttr) or len(numbers) % 2:
        raise Illegal(f"{IN_PLACE} must be an array of i64, a result and an operand in turn")
    pairs = in_place(site.op)
    takes, makes = operand_types(site.op), result_types(site.op)
    for result, operand in pairs.items():
        if not (0 <= result < len(makes) and 0 <= operand < len(takes)):
            raise Illegal(f"{IN_PLACE}: there is no result {result} or no operand {operand}")
        made, taken = makes[result], takes[operand]
        if made != taken:
            raise Illegal(f"{IN_PLACE}: result {result} is {made}, operand {operand} {taken}")
    if 2 * len(set(pairs.values())) != len(numbers):
        raise Illegal(f"{IN_PLACE}: a result and an operand may each be there once")


def _check_checks(site: Site) -> None:
    makes = result_types(site.op)
    try:
        found = checks(site.op)
    except (TypeError, ValueError):
        given = site.op.attributes[CHECKS]
        raise Illegal(f"{CHECKS} must be pairs of a number and a string, not {given}") from None
    for number in found:
        made = makes[number] if 0 <= number < len(makes) else None
        if made is None or made.dtype != torch.int64 or made.numel != 1:
            raise Illegal(f"{CHECKS}: result {number} is not a single si64")


def _expect(what: str, types: Sequence[TensorType], values: Sequence[ir.Value]) -> None:
    if len(types) != len(values):
        raise Illegal(f"must have {len(types)} {what}s, not {len(values)}")
    for number, (type_, value) in enumerate(zip(types, values, strict=True)):
        if value.type != builtin_type(type_, value.type.context):
            raise Illegal(f"{what} {number} must be the builtin tensor of {type_}, not {value.type}")


def operand_types(op: ir.Operation) -> list[TensorType]:
    """Return the types of the tensors that a kernel reads. Raises Illegal if its operand is no tuple of
    tensors.
    """
    return _element_types(op.operands[0].type, "operand") if len(op.operands) else []


def integer_count(op: ir.Operation) -> int:
    """Return how many integers follow the tensors among a kernel's operands."""
    types = element_types(op.operands[0].type) if len(op.operands) else None
    return sum(str(t) == INTEGER for t in types or ())


def kernel_symbols(op: ir.Operation) -> list[Symbol]:
    """Return the integers that a kernel takes, as symbols of its sizes."""
    hints = ir.DenseI64ArrayAttr(op.attributes[HINTS]) if HINTS in op.attributes else ()
    return [Symbol(number, hint) for number, hint in enumerate(hints)]


def kernel_shapes(op: ir.Operation) -> tuple[list[tuple[AnySize, ...]], list[tuple[AnySize, ...]]]:
    """Return the shapes of the operand tensors and of the result tensors of a kernel, in its symbols."""
    reads, makes = operand_types(op), result_types(op)
    if SHAPES not in op.attributes:
        return [t.shape for t in reads], [t.shape for t in makes]
    shapes = [read_shape(map_, kernel_symbols(op)) for map_ in op.attributes[SHAPES]]
    return shapes[: len(reads)], shapes[len(reads) :]


def result_types(op: ir.Operation) -> list[TensorType]:
    """Return the types of the tensors that a kernel makes. Raises Illegal as :func:`operand_types`."""
    return _element_types(op.results[0].type, "result")


def _element_types(type_: ir.Type, what: str) -> list[TensorType]:
    types = tuple_elements(type_)
    while what == "operand" and types and str(types[-1]) == INTEGER:
        types.pop()
    return [tensor_type(t, f"{what} {i}") for i, t in enumerate(types)]


def kernel_name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes[NAME]).value


def in_place(op: ir.Operation, attribute: str = IN_PLACE) -> dict[int, int]:
    """Map the number of each result that is written into an operand's memory to that operand's number."""
    if attribute not in op.attributes:
        return {}
    numbers = list(ir.DenseI64ArrayAttr(op.attributes[attribute]))
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


def checks(op: ir.Operation) -> dict[int, str]:
    """Map the number of each result that reports invalid indices to the error's message."""
    pairs = map(ir.ArrayAttr, op.attributes[CHECKS] if CHECKS in op.attributes else ())
    return {ir.IntegerAttr(pair[0]).value: ir.StringAttr(pair[1]).value for pair in pairs}


def write_checks(found: Mapping[int, str], context: ir.Context) -> ir.ArrayAttr:
    """Return the attribute that :func:`checks` reads."""
    pairs = [ir.ArrayAttr.get([i64(n, context), string(text, context)], context) for n, text in found.items()]
    return ir.ArrayAttr.get(pairs, context)


def kernel_operands(op: ir.Operation) -> list[ir.Value]:
    """Return the value tensors that a kernel or extern reads, then a kernel's integers, all before
    packing.
    """
    return list(op.operands[0].owner.operands) if len(op.operands) else []


def kernel_results(op: ir.Operation) -> list[ir.Value]:
    """Return the value tensors to which the result tuple of a kernel or extern is unpacked. Raises
    ValueError.
    """
    uses = [use.owner for use in op.results[0].uses]
    if len(uses) != 1 or uses[0].name != "torch.prim.TupleUnpack":
        raise ValueError(f"the results of a {op.name} must be unpacked once")
    return list(uses[0].operation.results)


def kernel_body(op: ir.Operation) -> tuple[list[ir.Value], list[ir.Operation], list[ir.Value]]:
    """Return a kernel body's arguments, its ops without the terminator, and the tensors that it yields."""
    block = op.regions[0].blocks[0]
    *ops, _, last = [o.operation for o in block.operations]
    return list(block.arguments), ops, yielded_values(last)


def kernel(
    name: str,
    ins: Sequence[ir.Value],
    arguments: Sequence[ir.Type],
    results: Sequence[TensorType],
    *,
    values: Mapping[str, int] | None = None,
    symbols: Sequence[Symbol] = (),
    shapes: Sequence[Sequence[AnySize]] = (),
    **at: Unpack[At],
) -> tuple[ir.Block, list[ir.Value], ir.Operation]:
    """Build a kernel. Return its body, its results and the op.

    The body is an empty block, which the caller fills and ends with ``yield_values``. ``arguments`` are the
    builtin types of ``ins``; ``values`` go into a ``#kern.config``. With ``symbols``, ``ins`` ends with an
    integer for each symbol, and ``shapes`` are the shapes of the tensors before them.
    """
    context = at["loc"].context
    attributes: dict[str, ir.Attribute] = {NAME: string(name, context)}
    if symbols:
        maps = [shape_map(shape, symbols, context) for shape in (*shapes, *(t.shape for t in results))]
        attributes[SHAPES] = ir.ArrayAttr.get(maps, context)
        attributes[HINTS] = ir.DenseI64ArrayAttr.get([s.hint for s in symbols], context)
    if values:
        attributes["config"] = config(values, context)
    outs = tuple_type([write_type(t, context) for t in results], context)
    operands = pack(ins, **at)
    op = ir.Operation.create(KernelOp.OPERATION_NAME, [outs], operands, attributes, regions=1, **at)
    body = empty_body(op, [*arguments, *[ir.IndexType.get(context)] * len(symbols)])
    return body, unpack(op.results[0], **at), op


def kernel_like(
    first: ir.Operation, name: str, ins: Sequence[ir.Value], **at: Unpack[At]
) -> tuple[list[ir.Value], ir.Operation]:
    """Clone the kernel ``first`` for other operands and another name. Return its results and the op."""
    operands = pack(ins, **at)
    op = first.clone(ip=at["ip"])
    for number, operand in enumerate(operands):
        op.operands[number] = operand
    op.attributes[NAME] = string(name, at["loc"].context)
    _set_location(op, at["loc"])
    return unpack(op.results[0], **at), op


def _set_location(op: ir.Operation, loc: ir.Location) -> None:
    """Set the location of an op and of all ops inside it."""
    op.location = loc
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                argument.set_location(loc)
            for inner in block.operations:
                _set_location(inner.operation, loc)
