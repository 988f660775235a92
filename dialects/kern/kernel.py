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
    """Computes its results from its operands as its body says: ``linalg`` on tensors.

    Operands and results are tuples of value tensors (left out where there are no operands). The body's
    arguments are the builtin tensors of the operands' shapes and dtypes, one for one; what it yields are
    those of the results. Where shapes have ``?``, integers follow the tensors among the operands, and as
    ``index`` among the body's arguments: ``kern.shapes`` says for each tensor operand and each result what
    its shape is in them, and ``kern.hints`` what they were when the kernel was made. Such an integer may also
    be any number (of a random draw) in which kernels differ that are else one. It holds ``linalg.generic``
    and ``linalg.fill``, ``tensor.empty``, expand_shape, collapse_shape and extract_slice, and ``arith`` and
    ``math``. Each dim of a generic's operand follows a loop of its own; slices keep all dims, and their
    offsets and strides are numbers. ``kern.name`` names the kernel, ``config`` (optional) tiles it.
    ``in_place`` (optional) holds pairs of numbers, result and operand: the result is written into the
    operand's memory. ``kern.checks`` (optional) holds pairs of the number of a result and a message: the
    result, an si64, is the smallest there is, or the call raises an IndexError with the message, in which the
    result stands for ``{}``. ``kern.tuned`` (optional) says in words how the ``config`` was found.

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
        raise Illegal(f"has sizes that its types do not say, and so must have {SHAPES} and {HINTS}")
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
            raise Illegal(f"{CHECKS}: result {number} is no single si64")


def _expect(what: str, types: Sequence[TensorType], values: Sequence[ir.Value]) -> None:
    if len(types) != len(values):
        raise Illegal(f"must have {len(types)} {what}s, not {len(values)}")
    for number, (type_, value) in enumerate(zip(types, values, strict=True)):
        if value.type != builtin_type(type_, value.type.context):
            raise Illegal(f"{what} {number} must be the builtin tensor of {type_}, not {value.type}")


def operand_types(op: ir.Operation) -> list[TensorType]:
    """The types of the tensors that a kernel reads. Raises Illegal if its operand is no tuple of tensors."""
    return _element_types(op.operands[0].type, "operand") if len(op.operands) else []


def integer_count(op: ir.Operation) -> int:
    """How many integers follow the tensors among a kernel's operands."""
    types = element_types(op.operands[0].type) if len(op.operands) else None
    return sum(str(t) == INTEGER for t in types or ())


def kernel_symbols(op: ir.Operation) -> list[Symbol]:
    """The integers that a kernel takes, as the symbols of its sizes."""
    hints = ir.DenseI64ArrayAttr(op.attributes[HINTS]) if HINTS in op.attributes else ()
    return [Symbol(number, hint) for number, hint in enumerate(hints)]


def kernel_shapes(op: ir.Operation) -> tuple[list[tuple[AnySize, ...]], list[tuple[AnySize, ...]]]:
    """The shapes of the tensors that a kernel reads and of those that it makes, in its symbols."""
    reads, makes = operand_types(op), result_types(op)
    if SHAPES not in op.attributes:
        return [t.shape for t in reads], [t.shape for t in makes]
    shapes = [read_shape(map_, kernel_symbols(op)) for map_ in op.attributes[SHAPES]]
    return shapes[: len(reads)], shapes[len(reads) :]


def result_types(op: ir.Operation) -> list[TensorType]:
    """The types of the tensors that it makes, likewise."""
    return _element_types(op.results[0].type, "result")


def _element_types(type_: ir.Type, what: str) -> list[TensorType]:
    types = tuple_elements(type_)
    while what == "operand" and types and str(types[-1]) == INTEGER:
        types.pop()
    return [tensor_type(t, f"{what} {i}") for i, t in enumerate(types)]


def kernel_name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes[NAME]).value


def in_place(op: ir.Operation, attribute: str = IN_PLACE) -> dict[int, int]:
    """Number of each result that is written into an operand's memory -> that operand's number."""
    if attribute not in op.attributes:
        return {}
    numbers = list(ir.DenseI64ArrayAttr(op.attributes[attribute]))
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


def checks(op: ir.Operation) -> dict[int, str]:
    """Number of each result that says whether an index is wrong -> the message of the error."""
    pairs = map(ir.ArrayAttr, op.attributes[CHECKS] if CHECKS in op.attributes else ())
    return {ir.IntegerAttr(pair[0]).value: ir.StringAttr(pair[1]).value for pair in pairs}


def write_checks(found: Mapping[int, str], context: ir.Context) -> ir.ArrayAttr:
    """The attribute that :func:`checks` reads."""
    pairs = [ir.ArrayAttr.get([i64(n, context), string(text, context)], context) for n, text in found.items()]
    return ir.ArrayAttr.get(pairs, context)


def kernel_operands(op: ir.Operation) -> list[ir.Value]:
    """The value tensors that a kernel or extern reads, then a kernel's integers: what was packed for it."""
    return list(op.operands[0].owner.operands) if len(op.operands) else []


def kernel_results(op: ir.Operation) -> list[ir.Value]:
    """The value tensors that it makes: what its tuple is unpacked to."""
    uses = [use.owner for use in op.results[0].uses]
    if len(uses) != 1 or uses[0].name != "torch.prim.TupleUnpack":
        raise ValueError(f"the results of a {op.name} must be unpacked once")
    return list(uses[0].operation.results)


def kernel_body(op: ir.Operation) -> tuple[list[ir.Value], list[ir.Operation], list[ir.Value]]:
    """A kernel's body: its arguments, its ops without those that end it, and the tensors that it yields."""
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
    """The body, an empty block that the caller fills and ends with ``yield_values``; the results; the op.

    ``arguments`` are the builtin types of ``ins``; ``values`` go into a ``#kern.config``. With ``symbols``,
    ``ins`` ends with an integer for each of them, and ``shapes`` are those of the tensors before.
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
    """A kernel with the body and attributes of ``first``, on other values: its results, and the op."""
    operands = pack(ins, **at)
    op = first.clone(ip=at["ip"])
    for number, operand in enumerate(operands):
        op.operands[number] = operand
    op.attributes[NAME] = string(name, at["loc"].context)
    _set_location(op, at["loc"])
    return unpack(op.results[0], **at), op


def _set_location(op: ir.Operation, loc: ir.Location) -> None:
    """Set the location of an op and of all that is inside."""
    op.location = loc
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                argument.set_location(loc)
            for inner in block.operations:
                _set_location(inner.operation, loc)
