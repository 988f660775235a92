"""``kern.extern``: a call of a PyTorch operator, such as a library's matmul. Level 4."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import torch
from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.call import Call, OpCall
from shardc.dialects.aten.schema import UnknownOperator, dtype_of, may_draw, number_of, overload
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.build import At, i64, string
from shardc.dialects.dist.tuples import pack, tuple_type, unpack
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Operand, Result, Site
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.kernel import kernel_operands, operand_types, result_types
from shardc.runtime.torch_private import schema_of


class ExternOp(Op, dialect=Kern, name="extern", traits=[ext.Pure]):
    """Calls the PyTorch operator ``target``, which must neither write to its operands nor draw random
    numbers.

    Operands and results are tuples of value tensors; an empty operand tuple is left out. ``reads`` names the
    operator's parameter for each operand, in schema order. ``arguments`` holds other arguments by name:
    integers, booleans, floats, strings and lists of those; a dtype is PyTorch's number. A parameter in
    neither has its default, or is None.

    ``%1 = "kern.extern"(%0) {target = "mkldnn._linear_pointwise", reads = ["X", "W"],
    arguments = {algorithm = "tanh", attr = "gelu", scalars = []}}
    : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>``
    """

    target: ir.StringAttr
    reads: ir.ArrayAttr
    arguments: ir.DictAttr
    outs: Result
    ins: Operand | None = None

    def check(self, site: Site) -> None:
        if len(site.op.results) != 1:
            raise LeftToMlir
        target = site.attribute("target", ir.StringAttr).value
        schema = _schema(target)
        if schema.is_mutable:
            raise Illegal(f"calls {target}, which writes to its operands")
        if may_draw(target):
            raise Illegal(f"calls {target}, which draws random numbers")
        site.attribute("reads", ir.ArrayAttr)
        site.attribute("arguments", ir.DictAttr)
        _bind(site.op, target, operand_types(site.op))
        made = result_types(site.op)
        if len(made) != len(schema.returns):
            raise Illegal(f"must have the {len(schema.returns)} results of {target}, not {len(made)}")


def _schema(target: str) -> Any:
    try:
        return schema_of(overload(target))
    except (UnknownOperator, AttributeError, ValueError):
        raise Illegal(f"calls {target}, and PyTorch has no such operator in this process") from None


def _bind(op: ir.Operation, target: str, types: Sequence[TensorType]) -> tuple[object, ...]:
    """Return the arguments of the call in schema order, tensors as types. Raises Illegal."""
    reads = [_text(name) for name in op.attributes["reads"]]
    given = {entry.name: entry.attr for entry in ir.DictAttr(op.attributes["arguments"])}
    if len(reads) != len(types):
        raise Illegal(f"has {len(types)} operands, and reads names {len(reads)} parameters")
    parameters = list(_schema(target).arguments)
    names = [p.name for p in parameters]
    for name in (*reads, *given):
        if name not in names:
            raise Illegal(f"{target} has no parameter {name}; it has {', '.join(names)}")
    if reads != [name for name in names if name in reads]:
        raise Illegal(f"reads must name each parameter once, in the order {', '.join(names)}")
    operands = dict(zip(reads, types, strict=True))
    return tuple(_argument(p, operands, given, target) for p in parameters)


def _argument(
    parameter: Any, operands: Mapping[str, TensorType], given: Mapping[str, ir.Attribute], target: str
) -> object:
    name, kind = parameter.name, str(parameter.real_type)
    takes_tensor = kind in ("Tensor", "Optional[Tensor]")
    if name in operands or (name in given and takes_tensor):
        if name not in operands or not takes_tensor or name in given:
            giver = "an operand" if takes_tensor else "arguments"
            raise Illegal(f"{name} of {target} has type {kind}: {giver} must give it")
        return operands[name]
    if name in given:
        return _constant(given[name], kind, name)
    if parameter.has_default_value():
        default = parameter.default_value
        return tuple(default) if isinstance(default, list) else default
    if not kind.startswith("Optional["):
        raise Illegal(f"must give {name} of {target}, a {kind}")
    return None


def _constant(attribute: ir.Attribute, kind: str, name: str) -> object:
    match attribute:
        case ir.BoolAttr() | ir.StringAttr() | ir.FloatAttr():
            return attribute.value
        case ir.IntegerAttr():
            return dtype_of(attribute.value) if "ScalarType" in kind else attribute.value
        case ir.ArrayAttr():
            return tuple(_constant(entry, kind, name) for entry in attribute)
    raise Illegal(f"{name} must be a number, a truth value, a string or a list of those, not {attribute}")


def _text(attribute: ir.Attribute) -> str:
    if not isinstance(attribute, ir.StringAttr):
        raise Illegal(f"reads holds names of parameters, not {attribute}")
    return attribute.value


def extern_call(op: ir.Operation) -> Call:
    """Return a ``kern.extern`` as a call whose operands and results are the tuples' elements."""
    target = ir.StringAttr(op.attributes["target"]).value
    spec = OpCall(target, _bind(op, target, operand_types(op)), tuple(result_types(op)))
    return Call(op, spec, kernel_operands(op))


def extern(
    target: str,
    reads: Mapping[str, ir.Value],
    arguments: Mapping[str, object],
    results: Sequence[TensorType],
    **at: Unpack[At],
) -> tuple[list[ir.Value], ir.Operation]:
    """Build the op. Return its results and the op. ``reads``: tensors by parameter, in schema order."""
    context = at["loc"].context
    with context, at["loc"]:
        attributes = {
            "target": string(target, context),
            "reads": ir.ArrayAttr.get([string(name, context) for name in reads]),
            "arguments": ir.DictAttr.get({name: _attribute(value) for name, value in arguments.items()}),
        }
    outs = tuple_type([write_type(t, context) for t in results], context)
    operands = pack(list(reads.values()), **at)
    op = ir.Operation.create(ExternOp.OPERATION_NAME, [outs], operands, attributes, **at)
    return unpack(op.results[0], **at), op


def _attribute(value: object) -> ir.Attribute:
    match value:
        case bool():
            return ir.BoolAttr.get(value)
        case torch.dtype():
            return _attribute(number_of(value))
        case int():
            return i64(value, ir.Context.current)
        case float():
            return ir.FloatAttr.get_f64(value)
        case str():
            return ir.StringAttr.get(value)
        case list() | tuple():
            return ir.ArrayAttr.get([_attribute(entry) for entry in value])
    raise TypeError(f"no attribute for {value!r}")
