"""Whether all ranks pass the same global batch to ``step``: each would cut its part from another one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import BatchMismatch

SAMPLE_BYTES = 4096
"""How much of each tensor is compared after the first step, evenly spread."""
_MASK = (1 << 62) - 1


class SameBatch:
    """Compares a hash of the batch between ranks: at the first step all of it, before the step; then a sample
    of what lies on the host, while the step runs. A difference is told of at the next step or save.
    """

    def __init__(self, world_size: int) -> None:
        self._is_alone = world_size == 1
        self._is_first = True
        self._pending: tuple[int, Tensor, dist.Work] | None = None

    def compare(self, values: Mapping[str, Tensor], step: int) -> None:
        """All ranks call it with their global batch. Raises BatchMismatch."""
        if self._is_alone:
            return
        self.settle()
        found = _hash(values, whole=self._is_first)
        pair = torch.tensor([found, -found])  # the largest and the smallest in one collective
        work = dist.all_reduce(pair, dist.ReduceOp.MAX, async_op=True)
        assert work is not None
        self._pending = step, pair, work
        if self._is_first:
            self.settle()
            self._is_first = False

    def settle(self) -> None:
        """Wait for the comparison that is under way. Raises BatchMismatch."""
        if self._pending is not None:
            (step, pair, work), self._pending = self._pending, None
            work.wait()
            largest, smallest = pair.tolist()
            if largest != -smallest:
                hint = "pass the same global batch on all ranks, or each rank's own part to step.local(batch)"
                raise BatchMismatch(f"the ranks passed different batches to step {step}", "batch", hint)


def _hash(values: Mapping[str, Tensor], whole: bool) -> int:
    found = 0
    for name in sorted(values):
        tensor = values[name]
        if whole or tensor.device.type == "cpu":
            flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            seen = flat if whole else flat[:: max(1, len(flat) // SAMPLE_BYTES)]
            weights = torch.arange(1, 2 * len(seen), 2)
            found = (found * 31 + int((seen.long() * weights).sum())) & _MASK
    return found
