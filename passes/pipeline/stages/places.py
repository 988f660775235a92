"""Places of the ops of one micro-batch: stages, and the parts of a stage's backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.dialects.pipe.stage_graph import StageGraph

Place = tuple[int, str]
"""A stage and a kind of action: F, I or W. A whole backward (B) is I, then W."""


@dataclass(frozen=True)
class Fold:
    """An addition ``op`` of ``term`` to the sum number ``number`` at ``place``.

    ``term`` may be one part of the op's own term, which is a sum.
    """

    number: int
    op: ir.Operation
    term: ir.Value
    place: Place


@dataclass(frozen=True)
class Row:
    """A ``value``, computed at ``place``, that is stacked over micro-batches to the loop's result
    ``result``.
    """

    value: ir.Value
    result: ir.Value
    dim: int
    place: Place


@dataclass
class Assignment:
    """The places of the ops of one micro-batch.

    ``place`` maps the first result of each op to its place. ``free`` ops depend on no parameter (masks,
    slices of the batch, random numbers); each stage that needs one has a copy. ``folds`` are the additions to
    sums over micro-batches; terms that sum several stages' values are split. ``rows`` are the values stacked
    over micro-batches. ``recompute`` has the policy of each stage. ``graph``: which stages the forward of
    each stage reads.
    """

    stages: int
    place: dict[ir.Value, Place] = field(default_factory=dict)
    free: set[ir.Value] = field(default_factory=set)
    ops: list[ir.Operation] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    recompute: Sequence[str] = ()
    graph: StageGraph = field(default_factory=lambda: StageGraph.chain(1))

    def place_of(self, value: ir.Value) -> Place | None:
        """Return where a value is computed; None for an argument of the body and for a free value."""
        return self.place.get(value.owner.results[0]) if isinstance(value, ir.OpResult) else None

    def is_free(self, value: ir.Value) -> bool:
        return isinstance(value, ir.OpResult) and value.owner.results[0] in self.free
