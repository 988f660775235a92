"""Linear layers with a cross entropy: choice of those that become kernels, and reasons against the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Set

from torch_mlir import ir

from shardc.cost.work import LAUNCH_BYTES
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.strides import Strides
from shardc.passes.fuse.grouping.group import Decision
from shardc.passes.fuse.grouping.region import Choose, loss_region
from shardc.passes.fuse.linear_loss.find import LOSS_OPS, Apart, LinearLoss, LossFinder
from shardc.passes.fuse.linear_loss.write import Raised, raise_loss
from shardc.passes.fuse.structured.candidates import Candidates


class Losses:
    """Linear layers of a block that end in a cross entropy, with the ``decisions`` on all of them.

    ``numbers`` has the steps of those that become kernels; no other kernel may take these steps.
    """

    def __init__(self, candidates: Candidates, strides: Mapping[ir.Value, Strides]) -> None:
        self._candidates, self._strides = candidates, strides
        self._chosen: list[LinearLoss] = []
        self.decisions: list[Decision] = []

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(number for loss in self._chosen for number in (*loss.numbers, *loss.beside))

    @property
    def pairs(self) -> set[frozenset[int]]:
        """Return all pairs of calls in the same kernel."""
        kernels = [part for loss in self._chosen for part in (loss.forward, loss.backward)]
        return {frozenset(pair) for part in kernels for pair in itertools.combinations(part, 2)}

    def find(self, choose: Choose | None) -> None:
        """Find the losses. ``choose`` decides on each; with None all of them become kernels."""
        candidates = self._candidates
        if LOSS_OPS.isdisjoint(candidates.targets):
            return
        for found in LossFinder(candidates.steps, candidates.rounding).find(candidates.is_free):
            if isinstance(found, Apart):
                self._decide(found.first, found.second, found.logits, found.why)
                continue
            why = self._refused(found, choose)
            self._decide(found.forward[0], found.softmax, found.logits, why)
            if why is None:
                self._chosen.append(found)

    def _refused(self, loss: LinearLoss, choose: Choose | None) -> str | None:
        """Return the reason why a loss stays calls; None if it becomes kernels."""
        constrained = self._candidates.constrained()
        for part in (loss.forward, loss.backward):
            for one in part:
                if edge := constrained.forbids({one}, set(part) - {one}):
                    return f"{edge} is forbidden"
        inside = set(loss.numbers)
        pairs = [pair for pairs in constrained.forced.values() for pair in pairs]
        if any(len(pair & inside) == 1 for pair in pairs):
            return "one of its calls is forced into another kernel"
        if choose is None or any(pair <= inside for pair in pairs):
            return None
        region = loss_region(self._candidates.number, self._candidates.steps, loss, self._strides)
        if region is None:
            return "it reads a value that is known only at run time"
        verdict = choose(region)
        return None if verdict.generated else verdict.why

    def _decide(self, first: int, second: int, logits: TensorType, why: str | None) -> None:
        saved_bytes = LAUNCH_BYTES + (2 * logits.size_bytes if logits.is_static else 0)
        self.decisions.append(Decision(first, second, why is None, saved_bytes, why or ""))

    def write(self, there: Set[int]) -> Iterator[tuple[LinearLoss, Raised]]:
        """Write the ops of each loss whose steps are all still ``there``."""
        builder = CallBuilder(self._candidates.block)
        for loss in self._chosen:
            raised = raise_loss(loss.first, builder) if there >= set(loss.numbers) else None
            if raised is not None:
                yield loss, raised
