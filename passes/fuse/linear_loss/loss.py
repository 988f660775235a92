"""What is found of a linear layer with its cross entropy, and of one that stays calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.linear_loss.calls import type_of


@dataclass(frozen=True)
class LinearLoss:
    """The calls that an op and its backward stand for: ``first`` is the log_softmax or its first call, of
    number ``softmax``. ``values`` have the names of :mod:`shardc.passes.fuse.linear_loss.forms`, and
    ``weight`` is [classes, size].

    ``forward`` and ``backward`` are the numbers of the calls, the product first; ``beside`` are steps that
    must not share a kernel with others.
    """

    values: Mapping[str, ir.Value]
    first: ir.Operation
    softmax: int
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    beside: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*self.forward, *self.backward)

    @property
    def logits(self) -> TensorType:
        return type_of(self.values["product"])

    @property
    def classes(self) -> int:
        return self.logits.shape[-1]

    @property
    def spared_bytes(self) -> int:
        """Of the logits, as they are multiplied and in f32, which are held from forward to backward."""
        return self.logits.size_bytes + (4 * self.logits.numel if self.logits.dtype != torch.float32 else 0)


@dataclass(frozen=True)
class Apart:
    """A product and a softmax, by the numbers of their steps, which are no such op, and why not."""

    first: int
    second: int
    why: str
    logits: TensorType
