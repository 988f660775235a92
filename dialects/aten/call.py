"""Reading torch-dialect ops as ATen calls.

A :class:`Call` is one MLIR op seen from Python: its operator, its arguments (constants as Python values,
tensors as their types) and the SSA values of the tensors. Rules, the oracle and the emitter read calls
instead of MLIR syntax.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch_mlir import ir

from shardc.dialects.aten.schema import dtype_of, may_draw, parameters, position
from shardc.dialects.aten.types import TensorType, read_type


@dataclass(frozen=True)
class IntValue:
    """A number known only at run time (``!torch.int``, ``!torch.float``), such as a rank's offset."""


INT_VALUE = IntValue()


@dataclass(frozen=True)
class Device:
    """A device argument. The traced device is ignored: tensors live on the device of their rank's program."""


DEVICE = Device()


@dataclass(frozen=True)
class OpCall:
    """An operator and its arguments, with tensors replaced by their types. Sharding rules see only this.

    ``args`` are in schema order, keyword-only ones included, with lists as tuples. Hashable.
    """

    target: str
    args: tuple[Any, ...]
    results: tuple[TensorType | None, ...]
    """Types of the results: None for an integer, and for a gradient that ``output_mask`` leaves out."""

    def __getitem__(self, name: str) -> Any:
        """Return the argument that the operator's schema calls ``name``."""
        return self.args[position(self.target, name)]

    @property
    def result(self) -> TensorType:
        """The type of the first result, which must be a tensor."""
        made = self.results[0]
        assert made is not None, f"{self.target} makes no tensor first"
        return made

    @cached_property
    def tensors(self) -> tuple[TensorType, ...]:
        """The types of the tensor arguments, in order, lists flattened, absent ones left out."""
        return tuple(leaf for leaf in leaves(self.args) if isinstance(leaf, TensorType))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.target, self.args, self.results))


@dataclass(slots=True)
class Call:
    """One torch op of a function: the call, its SSA operands and its SSA results.

    ``operands`` are the values of the :class:`TensorType` and :class:`IntValue` leaves of ``spec.args``, in
    order.
    """

    op: ir.Operation
    spec: OpCall
    operands: list[ir.Value]

    @property
    def results(self) -> list[ir.Value]:
        return list(self.op.results)


def leaves(args: Any) -> Iterator[Any]:
    """The leaves of an argument list, depth first. A :class:`TensorType` is one leaf."""
    for arg in args:
        if isinstance(arg, tuple) and not isinstance(arg, TensorType):
            yield from leaves(arg)
        else:
            yield arg


def replace_leaves(args: tuple[Any, ...], new: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return ``args`` with each leaf replaced by ``new(leaf)``."""
    return tuple(
        replace_leaves(a, new) if isinstance(a, tuple) and not isinstance(a, TensorType) else new(a)
        for a in args
    )


def fill(args: tuple[Any, ...], values: list[Any]) -> tuple[Any, ...]:
    """Return ``args`` with the tensor and run-time integer leaves replaced by ``values``, in order."""
    rest = iter(values)
    return replace_leaves(args, lambda leaf: next(rest) if isinstance(leaf, TensorType | IntValue) else leaf)


_KINDS = ("int", "float", "bool", "none", "str", "device", "number")
_CONSTANTS = frozenset(f"torch.constant.{kind}" for kind in _KINDS)
_LISTS = frozenset(("torch.prim.ListConstruct",))
_CASTS = {"torch.aten.Int.bool": int, "torch.aten.Float.Scalar": float, "torch.aten.Int.Scalar": int}
"""Casts of constants, which the importer inserts where a schema expects another kind of number."""


def is_constant(op: ir.Operation) -> bool:
    """Return whether the op only builds a Python-level argument (a number or a list) for other ops."""
    return op.name in _CONSTANTS or op.name in _LISTS or op.name in _CASTS


def target_name(op: ir.Operation) -> str:
    """Return the operator's name: ``aten.mm`` for ``torch.aten.mm``, the quoted one for
    ``torch.operator``.
    """
    name = op.name
    if name == "torch.operator":
        return ir.StringAttr(op.attributes["name"]).value.removeprefix("torch.")
    return name.removeprefix("torch.")


def draws(op: ir.Operation) -> bool:
    """Return whether a ``torch.*`` op draws random numbers."""
    target = target_name(op)
    if not op.name.startswith("torch.") or not may_draw(target):
        return False
    names = [name for name, _, _ in parameters(target)]
    if "dropout_p" not in names:
        return True
    owner = op.operands[names.index("dropout_p")].owner
    if isinstance(owner, ir.Block) or not is_constant(owner.operation):
        return True
    return ir.FloatAttr(owner.attributes["value"]).value != 0


class CallReader:
    """Reader of the ops of one function. It caches types and constants, so each is decoded once."""

    def __init__(self) -> None:
        self._types: dict[ir.Type, TensorType | None] = {}
        self._constants: dict[ir.Value, tuple[Any, list[ir.Value]]] = {}

    def read(self, op: ir.Operation) -> Call:
        """Return the call of a ``torch.*`` op that is not a constant."""
        target = target_name(op)
        args: list[Any] = []
        operands: list[ir.Value] = []
        for value, (_, kind, _) in zip(op.operands, parameters(target), strict=True):
            arg, tensors = self._argument(value)
            if arg is not None and "ScalarType" in kind:
                arg = dtype_of(arg)
            args.append(arg)
            operands.extend(tensors)
        results = tuple(self._result(r.type) for r in op.results)
        return Call(op, OpCall(target, tuple(args), results), operands)

    def tensor_type(self, type_: ir.Type) -> TensorType | None:
        """Return :func:`read_type` of a type; each distinct type is printed and parsed once."""
        try:
            return self._types[type_]
        except KeyError:
            found = self._types[type_] = read_type(type_)
            return found

    def _argument(self, value: ir.Value) -> tuple[Any, list[ir.Value]]:
        known = self._constants.get(value)
        if known is not None:
            return known
        type_ = self.tensor_type(value.type)
        if type_ is not None:
            return type_, [value]
        if isinstance(value, ir.BlockArgument):
            return INT_VALUE, [value]
        found = self._decode(value.owner, value)
        self._constants[value] = found
        return found

    def _decode(self, op: ir.Operation, result: ir.Value) -> tuple[Any, list[ir.Value]]:
        name = op.name
        if name == "torch.constant.none":
            return None, []
        if name == "torch.constant.device":
            return DEVICE, []
        if name in _CONSTANTS:
            value = op.attributes["value"].value
            return (bool(value) if name == "torch.constant.bool" else value), []
        if name in _CASTS:
            arg, tensors = self._argument(op.operands[0])
            return (arg, tensors) if arg is INT_VALUE else (_CASTS[name](arg), [])
        if name in _LISTS:
            parts = [self._argument(v) for v in op.operands]
            return tuple(arg for arg, _ in parts), [v for _, values in parts for v in values]
        return INT_VALUE, [result]

    def _result(self, type_: ir.Type) -> TensorType | None:
        found = self.tensor_type(type_)
        if found is None and str(type_) not in ("!torch.none", "!torch.int", "!torch.float"):
            raise TypeError(f"not a ranked value tensor: {type_}")
        return found
