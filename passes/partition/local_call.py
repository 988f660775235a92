"""Building of calls in a rank's program: result types, and the interface of rules' lowerings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Self

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import DEVICE, INT_VALUE, IntValue, OpCall, replace_leaves
from shardc.dialects.aten.schema import overload, parameters
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.collectives.exchange import exchange
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.rules.rule import Rule
from shardc.passes.manager.attributes import attributes_of, i64
from shardc.runtime.torch_private import schema_of

Types = tuple[TensorType | None, ...]


@dataclass
class CallWriter:
    """Writer of calls at one place of a function; meta kernels give their result types."""

    builder: CallBuilder
    loc: ir.Location
    ip: ir.InsertionPoint
    attributes: Mapping[str, ir.Attribute] = field(default_factory=dict)

    @classmethod
    def at(cls, builder: CallBuilder, op: ir.Operation, ip: ir.InsertionPoint | None = None) -> Self:
        """Return a writer before ``op`` (or at ``ip``), with its location and phase."""
        return cls(builder, op.location, ip or ir.InsertionPoint(op), attributes_of(op, "dist.phase"))

    def call(self, target: str, *args: object) -> ir.Value:
        """Build a call and return its first result. Trailing arguments have their defaults."""
        full = with_defaults(target, args)
        types = infer_types(target, replace_leaves(full, _leaf_type))
        return self.builder.call(target, full, types, self.loc, self.ip, self.attributes).results[0]

    def cast(self, value: ir.Value, dtype: torch.dtype) -> ir.Value:
        """Return ``value`` cast to ``dtype``; ``value`` itself if it has that dtype."""
        if type_of(value).dtype == dtype:
            return value
        return self.call("aten._to_copy", value, dtype, None, None)


@dataclass
class MlirLocal:
    """Implementation of :class:`~shardc.dialects.rules.rule.Local` that builds MLIR.

    It builds the rule's local ops at one place of the rank program. Handles are SSA values.
    """

    builder: CallBuilder
    codec: ShardingCodec
    loc: ir.Location
    ip: ir.InsertionPoint
    spec: OpCall
    rule: Rule
    args: tuple[object, ...]
    results: Types
    assignment: Mapping[str, Axes] = field(default_factory=dict)
    attributes: Mapping[str, ir.Attribute] = field(default_factory=dict)
    """Attributes of every op that it builds: the call's phase."""

    def size(self, factor: str) -> int:
        return self.rule.sizes[factor] // self.ways(factor)

    def ways(self, factor: str) -> int:
        return prod(a.size for a in self.assignment.get(factor, ()))

    def offset(self, factor: str, scale: int = 1, base: int | ir.Value = 0) -> int | ir.Value:
        axes = self.assignment.get(factor, ())
        if not axes:
            return base
        operands, start = ([base], 0) if isinstance(base, ir.Value) else ([], base)
        numbers = {"extent": self.size(factor), "scale": scale, "base": start}
        attributes = {name: i64(number, self.ip.block.owner.context) for name, number in numbers.items()}
        given, types = (
            {"axes": self.codec.axes(axes), **attributes, **self.attributes},
            [self.builder.type("!torch.int")],
        )
        return ir.Operation.create("dist.offset", types, operands, given, loc=self.loc, ip=self.ip).result

    def exchange(self, value: ir.Value, factor: str, sources: Sequence[int]) -> ir.Value:
        axes = self.assignment[factor]
        made = exchange(value, axes, sources, self.codec, loc=self.loc, ip=self.ip)
        for name, attribute in self.attributes.items():
            made.owner.attributes[name] = attribute
        return made

    def emit(self, target: str, *args: object) -> ir.Value | tuple[ir.Value, ...]:
        full = with_defaults(target, args)
        types = infer_types(target, replace_leaves(full, _leaf_type))
        if target == self.spec.target and len(types) == len(self.spec.results):
            types = self._corrected(types)
        op = self.builder.call(target, full, types, self.loc, self.ip, self.attributes)
        return op.results[0] if len(types) == 1 else tuple(op.results)

    def _corrected(self, types: Types) -> Types:
        """Correct dtypes that meta kernels predict wrongly for calls with mixed dtypes."""
        pairs = list(zip(types, self.spec.results, strict=True))
        if all(t is None or whole is None or t.dtype == whole.dtype for t, whole in pairs):
            return types
        predicted = infer_types(self.spec.target, with_defaults(self.spec.target, self.spec.args))
        return tuple(
            TensorType(t.shape, whole.dtype) if t and whole and p and t.dtype == p.dtype else t
            for (t, whole), p in zip(pairs, predicted, strict=True)
        )


def type_of(value: ir.Value) -> TensorType:
    """Return the type of a tensor value."""
    found = read_type(value.type)
    assert found is not None
    return found


def _leaf_type(leaf: object) -> object:
    return read_type(leaf.type) or INT_VALUE if isinstance(leaf, ir.Value) else leaf


def with_defaults(target: str, args: Sequence[object]) -> tuple[object, ...]:
    """Complete ``args`` in schema order with defaults; lists become tuples, and devices the rank's device."""
    schema = schema_of(overload(target)).arguments
    rest = [
        DEVICE if "Device" in kind else a.default_value
        for a, (_, kind, _) in zip(schema, parameters(target), strict=True)
    ]
    return tuple(tuple(a) if isinstance(a, list) else a for a in (*args, *rest[len(args) :]))


@lru_cache(maxsize=65536)
def infer_types(target: str, args: tuple[object, ...]) -> Types:
    """Return the result types of a call by running its meta kernel. ``args`` have types for tensors."""

    def meta(leaf: object) -> object:
        if isinstance(leaf, TensorType):
            return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")
        return 0 if isinstance(leaf, IntValue) else leaf

    schema = parameters(target)
    filled = [
        torch.device("meta") if "Device" in kind else arg
        for arg, (_, kind, _) in zip(replace_leaves(args, meta), schema, strict=True)
    ]
    positional = [a for a, (_, _, keyword) in zip(filled, schema, strict=True) if not keyword]
    named = {name: a for a, (name, _, keyword) in zip(filled, schema, strict=True) if keyword}
    made = overload(target)(*positional, **named)
    tensors = made if isinstance(made, tuple | list) else (made,)
    return tuple(None if t is None else TensorType(tuple(t.shape), t.dtype) for t in tensors)
