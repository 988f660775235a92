"""Check that all ranks pass the same global batch to ``step``, and start from the same weights.

Otherwise each rank would take its part from a different batch or model.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from .errors import BatchMismatch, WeightsMismatch

SAMPLE_BYTES = 4096
"""Number of evenly spaced elements of each tensor that are compared after the first step."""
_MASK = (1 << 62) - 1


class SameBatch:
    """Comparison of the batch's hash between ranks before each step.

    At the first step the hash covers the whole batch, later a sample of its host tensors. All ranks wait for
    the comparison. If hashes differ, all ranks raise, before any starts a collective of its program. A rank
    that raises before the comparison still takes part in it. At the first step the same collective compares
    the weights that the ranks start from.
    """

    def __init__(self, world_size: int) -> None:
        self._is_alone = world_size == 1
        self._is_first = True
        self._start: dict[str, int] = {}
        self._refused: dist.Work | None = None

    def start_from(self, values: object, names: Iterable[str], tied: Mapping[str, str]) -> None:
        """Compare the tensors of a mapping at the first step. ``values`` of another kind are ignored.

        ``names``: names in the state of all ranks. DTensors and tensors on the meta device are ignored.
        """
        self._start = {}
        if isinstance(values, Mapping) and self._is_first and not self._is_alone:
            given = {tied.get(name, name): value for name, value in values.items()}
            self._start = {name: _hash_weights(given.get(name)) for name in sorted(names)}

    def compare(self, values: Mapping[str, Tensor], step: int) -> None:
        """Compare the batch. All ranks must call it. Raises BatchMismatch, and at first WeightsMismatch."""
        if self._is_alone:
            return
        pairs, work = self._started(_hash(values, whole=self._is_first))
        work.wait()
        refused_by = int(pairs[1, 0]) - 1
        of_batch, *of_weights = (pairs[0] != -pairs[1]).tolist()
        if any(of_weights):
            raise _different([n for n, differs in zip(self._start, of_weights, strict=True) if differs])
        if refused_by >= 0:
            what = f"rank {refused_by} refused its batch of step {step} (this rank: {shapes_of(values)})"
            raise BatchMismatch(what, "batch", f"read the error of rank {refused_by}")
        if of_batch:
            hint = "pass the same global batch on all ranks, or each rank's own part to step.local(batch)"
            what = f"the ranks passed different batches to step {step} (this rank: {shapes_of(values)})"
            raise BatchMismatch(what, "batch", hint)
        self._is_first, self._start = False, {}

    @contextmanager
    def or_refused(self) -> Iterator[None]:
        """Context of the work before ``compare``. If it raises, the other ranks raise BatchMismatch.

        It does not wait for other ranks, which may have ended.
        """
        try:
            yield
        except Exception:
            if not self._is_alone:
                # Hashes are never negative, so this marks an error of this rank.
                _, self._refused = self._started(-1 - dist.get_rank())
            raise

    def _started(self, of_batch: int) -> tuple[Tensor, dist.Work]:
        """Start the reduction. Return a tensor for the largest and smallest hashes, and the work."""
        found = [of_batch, *self._start.values()]
        pairs = torch.tensor([found, [-value for value in found]])
        work = dist.all_reduce(pairs, dist.ReduceOp.MAX, async_op=True)
        assert work is not None
        return pairs, work

    def compare_start(self, step: int) -> None:
        """Compare only the initial weights, since each rank has its own batch. Raises WeightsMismatch."""
        if self._is_first:
            self.compare({}, step)


def shapes_of(values: Mapping[str, Tensor]) -> str:
    """Describe the tensors of a batch, as ``0 float32 [5, 8], 1 int64 [5]``."""
    dtypes = {name: str(value.dtype).removeprefix("torch.") for name, value in values.items()}
    return ", ".join(f"{name} {dtypes[name]} {list(values[name].shape)}" for name in sorted(values))


def _different(names: list[str]) -> WeightsMismatch:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    what = f"the ranks' models start from different values of {', '.join(map(repr, names[:3]))}{more}"
    hint = (
        "call torch.manual_seed with one seed on all ranks before the model is made, broadcast its "
        "parameters and buffers from rank 0 (torch.distributed.broadcast), or load the same file on all ranks"
    )
    return WeightsMismatch(what, names[0], hint)


def _hash(values: Mapping[str, Tensor], whole: bool) -> int:
    found = zlib.crc32(shapes_of(values).encode())
    for name in sorted(values):
        tensor = values[name]
        if whole or tensor.device.type == "cpu":
            flat = tensor.detach().cpu().contiguous().view(-1)
            found = (found * 31 + _in_order(flat if whole else _sample(flat))) & _MASK
    return found


def _hash_weights(value: object) -> int:
    """Hash weights by the sum of all words and the order of a sample, at the speed of memory."""
    if not isinstance(value, Tensor) or isinstance(value, DTensor) or value.is_meta:
        return 0
    flat = value.detach().contiguous().view(-1)
    seen = flat.view(torch.uint8)
    if seen.storage_offset() % 8:
        seen = seen.clone()
    words = seen[: len(seen) // 8 * 8].view(torch.int64)
    rest = seen[8 * len(words) :]
    return (int(words.sum()) + int(rest.long().sum()) + 31 * _in_order(_sample(flat).cpu())) & _MASK


def _sample(flat: Tensor) -> Tensor:
    return flat[:: max(1, flat.numel() * flat.element_size() // SAMPLE_BYTES)]


def _in_order(flat: Tensor) -> int:
    seen = flat.contiguous().view(torch.uint8)
    return int((seen.long() * torch.arange(1, 2 * len(seen), 2)).sum())
