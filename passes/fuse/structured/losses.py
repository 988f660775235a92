"""Linear layers of a block with a cross entropy behind them: which become kernels, and why others do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set

from torch_mlir import ir

from shardc.cost.work import LAUNCH_BYTES
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.strides import Strides
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.group import Decision
from shardc.passes.fuse.grouping.region import Choose, loss_region
from shardc.passes.fuse.linear_loss.calls import target_of
from shardc.passes.fuse.linear_loss.find import LOSS_OPS, LossFinder
from shardc.passes.fuse.linear_loss.loss import Apart, LinearLoss
from shardc.passes.fuse.linear_loss.write import Raised, raise_loss
from shardc.passes.fuse.reading.graph import Step
from shardc.passes.fuse.reading.read import steps_of
from shardc.passes.ingest.torch_share import unread


class Losses:
    """The linear layers of block ``number`` with a cross entropy behind them: those that become kernels
    (``numbers``: the steps that share no other kernel), and the ``decisions`` on all.
    """

    def __init__(
        self,
        number: int,
        block: ir.Block,
        exclude: frozenset[ir.Value],
        without: frozenset[int],
        constraints: FusionConstraints,
        rounding: str,
        strides: Mapping[ir.Value, Strides],
    ) -> None:
        self._number, self._block, self._exclude, self._without = number, block, exclude, without
        self._constraints, self._rounding, self._strides = constraints, rounding, strides
        self._chosen: list[LinearLoss] = []
        self.decisions: list[Decision] = []

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(number for loss in self._chosen for number in (*loss.numbers, *loss.beside))

    @property
    def pairs(self) -> set[frozenset[int]]:
        """Every two calls that are in one kernel."""
        kernels = [part for loss in self._chosen for part in (loss.forward, loss.backward)]
        return {frozenset(pair) for part in kernels for pair in itertools.combinations(part, 2)}

    def find(self, choose: Choose | None) -> None:
        """``choose`` decides on each; None: all of them become kernels."""
        steps = steps_of(self._block)
        if not any(op.name in LOSS_OPS for op in steps):
            return
        excluded = self._exclude | unread(self._block)

        def is_free(step: int) -> bool:
            return step not in self._without and excluded.isdisjoint(steps[step].results)

        for found in LossFinder(steps, self._rounding).find(is_free):
            if isinstance(found, Apart):
                self._decide(found.first, found.second, False, found.logits, found.why)
                continue
            first, second = found.forward[0], found.softmax
            why = self._refused(found, choose, steps)
            self._decide(first, second, why is None, found.logits, why or "")
            if why is None:
                self._chosen.append(found)

    def _refused(self, loss: LinearLoss, choose: Choose | None, steps: Sequence[ir.Operation]) -> str | None:
        """Why a loss is to stay calls; None if it becomes kernels."""
        named = [Step(n, op, target_of(op), [], []) for n, op in enumerate(steps)]
        constrained = self._constraints.in_block(self._number, named)
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
        region = loss_region(self._number, steps, loss, self._strides)
        verdict = None if region is None else choose(region)
        if verdict is None:
            return "it reads what is known at run time only"
        return None if verdict.generated else verdict.why

    def _decide(self, first: int, second: int, fused: bool, logits: TensorType, why: str) -> None:
        saved_bytes = LAUNCH_BYTES + (2 * logits.size_bytes if logits.is_static else 0)
        self.decisions.append(Decision(first, second, fused, saved_bytes, why))

    def write(self, there: Set[int]) -> Iterator[tuple[LinearLoss, Raised]]:
        """Write the ops of each loss whose steps are all still ``there``."""
        builder = CallBuilder(self._block)
        for loss in self._chosen:
            raised = raise_loss(loss.first, builder) if there >= set(loss.numbers) else None
            if raised is not None:
                yield loss, raised
