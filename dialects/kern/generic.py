"""View of a ``linalg.generic`` in a kernel's body as a nest of loops.

The oracle, the code generators, fusion and the tuner read every generic through :class:`GenericLoops`.
:mod:`shardc.dialects.kern.body` says which ops are allowed in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple, TypeVar

from torch_mlir import ir

from shardc.diagnostics.kernels import KernelNotSupported

GENERIC = "linalg.generic"
_JOINS = "addf mulf maximumf minimumf maxnumf minnumf addi muli maxsi minsi maxui minui ori andi xori"
JOINS = frozenset(f"arith.{name}" for name in _JOINS.split())
"""Associative ops that may combine a term with a reduction's accumulator."""

Size = TypeVar("Size")


class Join(NamedTuple):
    """The ``op`` that combines ``term`` with a reduction's accumulator."""

    op: ir.Operation
    term: ir.Value


@dataclass(eq=False)
class GenericLoops:
    """The loops of the ``linalg.generic`` ``op``. Operand numbers count its inputs, then its inits."""

    op: ir.Operation

    @cached_property
    def block(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @cached_property
    def body_ops(self) -> list[ir.Operation]:
        """The scalar ops of one iteration, without the yield."""
        return [view.operation for view in self.block.operations][:-1]

    @cached_property
    def yielded(self) -> list[ir.Value]:
        """The scalar that is yielded for each result."""
        return list(self.block.operations[len(self.block.operations) - 1].operation.operands)

    @cached_property
    def input_count(self) -> int:
        return ir.DenseI32ArrayAttr(self.op.attributes["operandSegmentSizes"])[0]

    @cached_property
    def maps(self) -> list[tuple[int, ...]]:
        """For each operand, the loop of each of its dims. Raises KernelNotSupported for other maps."""
        maps = [attribute.value for attribute in self.op.attributes["indexing_maps"]]
        for map_ in maps:
            if not map_.is_projected_permutation:
                raise KernelNotSupported(what=f"{map_} as an indexing map")
        return [tuple(ir.AffineDimExpr(e).position for e in map_.results) for map_ in maps]

    @cached_property
    def reduces(self) -> tuple[bool, ...]:
        """For each loop, whether it is a reduction."""
        return tuple("reduction" in str(kind) for kind in self.op.attributes["iterator_types"])

    def loop_sizes(self, shapes: Sequence[Sequence[Size]]) -> tuple[Size, ...]:
        """Return the size of each loop for operands of ``shapes`` (empty for a scalar)."""
        sizes: dict[int, Size] = {}
        for map_, shape in zip(self.maps, shapes, strict=True):
            sizes.update(zip(map_, shape, strict=True))
        return tuple(sizes[loop] for loop in range(len(self.reduces)))

    def typed_sizes(self, unknown: int) -> tuple[int, ...]:
        """Return the size of each loop from the operands' types; ``unknown`` stands for symbolic sizes."""
        operands = zip(self.op.operands, self.maps, strict=True)
        return self.loop_sizes([_typed_shape(v.type, unknown) if map_ else [] for v, map_ in operands])

    def reduced_size(self) -> int:
        """The number of terms of each reduction, with symbolic sizes counted as 1; 1 without a reduction."""
        sizes = zip(self.typed_sizes(1), self.reduces, strict=True)
        return prod(max(1, size) for size, reduces in sizes if reduces)

    def join(self, result: int) -> Join | None:
        """Return how ``result`` is accumulated, if exactly one op of :data:`JOINS` combines it with a
        term.
        """
        accumulator, value = self.block.arguments[self.input_count + result], self.yielded[result]
        users = [use.owner.operation for use in accumulator.uses]
        made = self.made_here(value)
        if made is None or users != [made] or made.name not in JOINS:
            return None
        return Join(users[0], next(v for v in users[0].operands if v != accumulator))

    def made_here(self, value: ir.Value) -> ir.Operation | None:
        """Return the op of the generic's region that computes ``value``, or None if it is computed
        elsewhere.
        """
        made = None if isinstance(value, ir.BlockArgument) else value.owner.operation
        return made if made is not None and made.block == self.block else None


def _typed_shape(type_: ir.RankedTensorType, unknown: int) -> list[int]:
    return [unknown if type_.is_dynamic_dim(d) else n for d, n in enumerate(type_.shape)]


def loop_of(value: ir.Value) -> int | None:
    """Return the loop whose index ``value`` is, that is, the dim of a ``linalg.index``; else None."""
    if isinstance(value, ir.BlockArgument) or value.owner.operation.name != "linalg.index":
        return None
    return value.owner.operation.attributes["dim"].value
