"""Building torch-dialect ops from ATen calls: the inverse of :mod:`shardc.dialects.aten.call`."""

from collections.abc import Mapping, Sequence

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import Device
from shardc.dialects.aten.schema import number_of, parameters
from shardc.dialects.aten.types import TensorType


class CallBuilder:
    """Builder of calls in one function. Each constant is built once, at the head of the body, and shared."""

    def __init__(self, body: ir.Block) -> None:
        self._body = body
        self._context = body.owner.context
        self._constants: dict[object, ir.Value] = {}
        self._types: dict[str, ir.Type] = {}
        self._unknown = ir.Location.unknown(self._context)
        self._last_constant: ir.Operation | None = None

    def type(self, type_: TensorType | str) -> ir.Type:
        text = str(type_)
        if text not in self._types:
            self._types[text] = ir.Type.parse(text, self._context)
        return self._types[text]

    def call(
        self,
        target: str,
        args: Sequence[object],
        results: Sequence[TensorType | None],
        loc: ir.Location,
        ip: ir.InsertionPoint,
        attributes: Mapping[str, ir.Attribute] | None = None,
    ) -> ir.Operation:
        """Build one call. ``args`` are in schema order, with SSA values for tensors and run-time integers."""
        kinds = (kind for _, kind, _ in parameters(target))
        operands = [self.argument(arg, kind, ip) for arg, kind in zip(args, kinds, strict=True)]
        types = [self.type("!torch.none" if r is None else r) for r in results]
        name = f"torch.{target}"
        attributes = dict(attributes or {})
        if not self._context.is_registered_operation(name):
            attributes["name"] = ir.StringAttr.get(name, self._context)
            name = "torch.operator"
        return ir.Operation.create(name, types, operands, attributes, loc=loc, ip=ip)

    def argument(self, arg: object, kind: str, ip: ir.InsertionPoint) -> ir.Value:
        """Return the SSA value of one argument; ``kind`` is its type in the schema."""
        if isinstance(arg, ir.Value):
            return arg
        if isinstance(arg, tuple | list):
            return self._list(tuple(arg), _element(kind), ip)
        return self._constant(arg)

    def _list(self, args: tuple[object, ...], kind: str, ip: ir.InsertionPoint) -> ir.Value:
        element = _list_element_type(kind, args)
        static = not any(isinstance(a, ir.Value) for a in args)
        key = ("list", element, tuple((type(a), a) for a in args))
        if static and key in self._constants:
            return self._constants[key]
        values = [self._constant(a) if not isinstance(a, ir.Value) else a for a in args]
        where, types = self._head() if static else ip, [self.type(f"!torch.list<{element}>")]
        op = ir.Operation.create("torch.prim.ListConstruct", types, values, loc=self._unknown, ip=where)
        if static:
            self._constants[key] = op.result
            self._last_constant = op
        return op.result

    def _constant(self, value: object) -> ir.Value:
        key = (type(value), repr(value) if isinstance(value, float) else value)
        if key not in self._constants:
            self._constants[key] = self._make_constant(value)
        return self._constants[key]

    def _make_constant(self, value: object) -> ir.Value:
        name, type_, attribute = self._constant_parts(value)
        attributes, types = {} if attribute is None else {"value": attribute}, [self.type(type_)]
        where = self._head()
        op = ir.Operation.create(f"torch.constant.{name}", types, [], attributes, loc=self._unknown, ip=where)
        self._last_constant = op
        return op.result

    def _constant_parts(self, value: object) -> tuple[str, str, ir.Attribute | None]:
        context = self._context
        if value is None:
            return "none", "!torch.none", None
        if isinstance(value, bool):
            bit = ir.IntegerType.get_signless(1, context)
            return "bool", "!torch.bool", ir.IntegerAttr.get(bit, int(value))
        if isinstance(value, torch.dtype):
            value = number_of(value)
        if isinstance(value, int):
            return "int", "!torch.int", ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)
        if isinstance(value, float):
            with self._unknown:
                return "float", "!torch.float", ir.FloatAttr.get(ir.F64Type.get(context), value)
        if isinstance(value, str):
            return "str", "!torch.str", ir.StringAttr.get(value, context)
        if isinstance(value, Device):
            return "device", "!torch.Device", ir.StringAttr.get("cpu", context)
        raise TypeError(f"no torch constant for {value!r}")

    def _head(self) -> ir.InsertionPoint:
        """Return the insertion point of the next constant: the head of the body, behind earlier constants."""
        if self._last_constant is not None:
            return ir.InsertionPoint.after(self._last_constant)
        return ir.InsertionPoint.at_block_begin(self._body)


def _element(kind: str) -> str:
    """Return the element type of a list type: ``List[int]`` and ``Optional[List[int]]`` give ``int``."""
    inner = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    return inner.removeprefix("List[").removesuffix("]")


def _list_element_type(kind: str, args: tuple[object, ...]) -> str:
    """The torch dialect's element type for a list of schema element type ``kind``."""
    if "Tensor" in kind:
        return "optional<vtensor>" if kind.startswith("Optional") else "vtensor"
    if kind == "number":
        return "float" if any(isinstance(a, float) for a in args) else "int"
    return {"int": "int", "float": "float", "bool": "bool", "SymInt": "int"}[kind]
