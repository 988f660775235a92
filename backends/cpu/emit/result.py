"""``Result``: one result of a root, its position in memory, and its combiner."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.backends.body.combiner import Combiner
from shardc.backends.body.graph import Generic, Value
from shardc.backends.body.linear import Index, Linear, Shape, row_major
from shardc.backends.body.roots import Root
from shardc.dialects.kern.size import AnySize


@dataclass(frozen=True)
class Result:
    """Result ``n`` of a root. Only a reduction's result has ``generic``, ``combiner`` and ``init``."""

    root: Root
    n: int = 0

    @property
    def generic(self) -> Generic:
        assert self.root.generic is not None
        return self.root.generic

    @property
    def combiner(self) -> Combiner:
        assert self.root.combiners is not None
        return self.root.combiners[self.n]

    @property
    def init(self) -> Value:
        return self.generic.inits[self.n]

    @property
    def stored(self) -> Value:
        """Value that a root other than a reduction stores."""
        assert self.root.value is not None
        return self.root.value

    @property
    def element(self) -> ir.Type:
        return (self.init if self.root.is_reduction else self.stored).element

    @property
    def index(self) -> Index:
        """Index at which it is written when the loops are at the root's dims."""
        return self.root.result_index(self.n)

    @property
    def shape(self) -> Shape:
        return self.root.result_shape(self.n)

    @property
    def count(self) -> AnySize:
        """Number of its elements."""
        return prod(self.shape)

    @property
    def offset(self) -> Linear:
        """Offset at which it is written, in elements."""
        return row_major(self.index, self.shape)


def results_of(root: Root) -> list[Result]:
    """Return all results of a root."""
    return [Result(root, n) for n in range(root.result_count())]
