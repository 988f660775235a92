"""One rank's version of a call as MLIR: the :class:`~shardc.dialects.rules.rule.Local` that partitioning
hands to rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import DEVICE, INT_VALUE, IntValue, OpCall, replace_leaves
from shardc.dialects.aten.schema import overload, parameters
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.rules.rule import Rule
from shardc.runtime.torch_private import schema_of


class MlirLocal:
    """Builds a rule's local ops at one place of the rank program. Handles are SSA values."""

    def __init__(
        self,
        builder: CallBuilder,
        codec: ShardingCodec,
        place: tuple[ir.Location, ir.InsertionPoint],
        call: tuple[OpCall, Rule, dict[str, Axes]],
        args: tuple[Any, ...],
        results: tuple[TensorType | None, ...],
    ) -> None:
        self._builder = builder
        self._codec = codec
        self._loc, self._ip = place
        self.spec, self._rule, self._assignment = call
        self.args = args
        self.results = results

    def size(self, factor: str) -> int:
        return self._rule.sizes[factor] // self.ways(factor)

    def ways(self, factor: str) -> int:
        return prod(a.size for a in self._assignment.get(factor, ()))

    def offset(self, factor: str, scale: int = 1, base: Any = 0) -> Any:
        axes = self._assignment.get(factor, ())
        if not axes:
            return base
        i64 = ir.IntegerType.get_signless(64, self._ip.block.owner.context)
        operands = [base] if isinstance(base, ir.Value) else []
        attributes = {
            "axes": self._codec.axes(axes),
            "extent": ir.IntegerAttr.get(i64, self.size(factor)),
            "scale": ir.IntegerAttr.get(i64, scale),
            "base": ir.IntegerAttr.get(i64, 0 if operands else base),
        }
        op = ir.Operation.create(
            "dist.offset",
            [self._builder.type("!torch.int")],
            operands,
            attributes,
            loc=self._loc,
            ip=self._ip,
        )
        return op.result

    def emit(self, target: str, *args: Any) -> Any:
        full = with_defaults(target, args)
        types = infer_types(target, replace_leaves(full, _leaf_type))
        if target == self.spec.target and len(types) == len(self.spec.results):
            types = self._corrected(types)
        op = self._builder.call(target, full, types, self._loc, self._ip)
        return op.results[0] if len(types) == 1 else tuple(op.results)

    def _corrected(self, types: tuple[TensorType | None, ...]) -> tuple[TensorType | None, ...]:
        """What meta kernels predict wrongly for the whole call, in mixed dtypes, is as the call has it."""
        pairs = list(zip(types, self.spec.results, strict=True))
        if all(t is None or whole is None or t.dtype == whole.dtype for t, whole in pairs):
            return types
        predicted = infer_types(self.spec.target, with_defaults(self.spec.target, self.spec.args))
        return tuple(
            TensorType(t.shape, whole.dtype) if t and whole and p and t.dtype == p.dtype else t
            for (t, whole), p in zip(pairs, predicted, strict=True)
        )


def _leaf_type(leaf: Any) -> Any:
    if not isinstance(leaf, ir.Value):
        return leaf
    return read_type(leaf.type) or INT_VALUE


def with_defaults(target: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """``args`` in schema order, lists as tuples, the missing ones at their defaults (devices as the rank's
    own).
    """
    schema = schema_of(overload(target)).arguments
    given = [tuple(a) if isinstance(a, list) else a for a in args]
    rest = [
        DEVICE if "Device" in kind else a.default_value
        for a, (_, kind, _) in zip(schema, parameters(target), strict=True)
    ]
    return (*given, *(tuple(a) if isinstance(a, list) else a for a in rest[len(given) :]))


@lru_cache(maxsize=65536)
def infer_types(target: str, args: tuple[Any, ...]) -> tuple[TensorType | None, ...]:
    """The result types of a call, by running its meta kernel. ``args`` hold types where tensors go."""

    def meta(leaf: Any) -> Any:
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
