"""Micro-batches of an example batch, for steps that run each micro-batch as a separate program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from shardc.diagnostics.passes.accumulate import NoBatchDim, UnevenMicroBatches
from shardc.frontend.step.batch import flatten_batch, unflatten_batch


@dataclass(frozen=True)
class MicroBatches:
    """``count`` micro-batches that run as separate programs.

    ``first`` is the first of them. ``whole`` names the tensors of the batch that are not split.
    """

    count: int
    first: object
    whole: tuple[str, ...]


def cut_micro_batches(batch: object, count: int, together: int = 1) -> MicroBatches:
    """Split the tensors of a global batch along dim 0 into ``count`` parts.

    The result's ``first`` has the first ``together`` parts.

    Every micro-batch gets 0-d tensors whole, and also tensors with one row if others have more. Raises
    NoBatchDim if dim 0 differs among the others, UnevenMicroBatches, BatchUnsupported.
    """
    tensors, tree = flatten_batch(batch)
    rows = _rows(tensors, tree.names)
    if rows % count:
        into = f"into {count} micro-batches"
        raise UnevenMicroBatches(what="a batch", size=rows, into=into, multiple=count, where="example_batch")
    part = rows // count * together
    whole = tuple(name for name, t in zip(tree.names, tensors, strict=True) if not t.dim() or len(t) != rows)
    first = [t if name in whole else t[:part] for name, t in zip(tree.names, tensors, strict=True)]
    return MicroBatches(count, unflatten_batch(tree, first), whole)


def _rows(tensors: Sequence[Tensor], names: Sequence[str]) -> int:
    """Return the common size of dim 0, ignoring tensors with one row. Raises NoBatchDim."""
    sizes = {name: len(t) for name, t in zip(names, tensors, strict=True) if t.dim()}
    found = set(sizes.values()) - {1} or set(sizes.values())
    if len(found) != 1:
        said = ", ".join(f"{name} has {size}" for name, size in sizes.items()) or "none has a dim"
        raise NoBatchDim(sizes=said, where="example_batch")
    return found.pop()
