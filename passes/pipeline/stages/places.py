"""Where the ops of one micro-batch run: their stages, and the parts of a stage's backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

Place = tuple[int, str]
"""A stage and a kind of action: F, I or W. A whole backward (B) is I, then W."""


@dataclass(frozen=True)
class Fold:
    """``op`` adds ``term`` to the sum number ``number`` at ``place``.

    The op's own term may be a sum of which this is one part.
    """

    number: int
    op: ir.Operation
    term: ir.Value
    place: Place


@dataclass(frozen=True)
class Row:
    """``value``, made at ``place``, is stacked over micro-batches: the loop's result ``result``."""

    value: ir.Value
    result: ir.Value
    dim: int
    place: Place


@dataclass
class Assignment:
    """The places of the ops of one micro-batch.

    ``place`` is that of each op by its first result. ``free`` ops depend on no parameter (masks, slices of
    the batch, random numbers): a stage that needs one has a copy. ``folds`` are the additions to sums over
    micro-batches; a term that sums several stages' values was split. ``rows`` are what is
    stacked over them. ``recompute``: the policy of each stage.
    """

    stages: int
    place: dict[ir.Value, Place] = field(default_factory=dict)
    free: set[ir.Value] = field(default_factory=set)
    ops: list[ir.Operation] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    recompute: Sequence[str] = ()

    def place_of(self, value: ir.Value) -> Place | None:
        """Where a value is made; None for an argument of the body and for a free value."""
        return self.place.get(value.owner.results[0]) if isinstance(value, ir.OpResult) else None

    def is_free(self, value: ir.Value) -> bool:
        return isinstance(value, ir.OpResult) and value.owner.results[0] in self.free
