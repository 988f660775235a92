"""What is found of a linear layer with its cross entropy, and of one that stays calls."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.linear_loss.calls import factors, has_bias, weight_of


class Refused(Exception):
    """Why the logits of a linear layer are made, in words."""


@dataclass(frozen=True)
class Parts:
    """Of a log_softmax: ``top`` has the largest logits of rows [rows, 1], ``shifted`` the logits less the largest ones of
    all devices, ``total`` the sums of the exponentials of these.
    """

    top: ir.Operation
    shifted: ir.Operation
    total: ir.Operation


@dataclass(frozen=True)
class LogSoftmax:
    """A log_softmax of ``logits`` [rows, classes], one call or its ``parts``; ``ops`` are all calls, in order."""

    logits: ir.Value
    ops: tuple[ir.Operation, ...]
    parts: Parts | None = None

    @property
    def first(self) -> ir.Operation:
        return self.ops[0]

    @property
    def last(self) -> ir.Operation:
        return self.ops[-1]

    @property
    def logp(self) -> ir.Value:
        return self.last.results[0]


@dataclass(frozen=True)
class Gradient:
    """What is made of the gradient of a log_softmax, which is ``scaled`` + ``spread``.

    ``scaled`` multiplies ``scatter``, 0 but at the class of each row, with its operand ``side``. ``spread`` (or None)
    is one number for all classes of a row, expanded. ``sums`` (or None) adds the gradient up over the classes. Where the
    log_softmax is in parts, ``fall`` multiplies what devices combine of that with the ``probabilities``.
    ``kept`` reads zeros that scatter changes, where it writes. ``rows`` and ``weight``: the products that make the
    gradients of these, ``bias``: the sum over rows that does; None for what needs none; ``ops`` are all calls.
    """

    scaled: ir.Operation
    side: int
    scatter: ir.Operation
    spread: ir.Operation | None
    sums: ir.Operation | None
    probabilities: ir.Operation | None
    fall: ir.Operation | None
    kept: ir.Operation | None
    rows: ir.Operation | None
    weight: ir.Operation | None
    bias: ir.Operation | None
    ops: tuple[ir.Operation, ...]

    @property
    def products(self) -> list[ir.Operation]:
        return [op for op in (self.rows, self.weight) if op is not None]

    @property
    def made(self) -> list[ir.Operation]:
        """All calls whose results others read."""
        return [*self.products, *([] if self.bias is None else [self.bias])]


@dataclass(frozen=True)
class LinearLoss:
    """The calls that two kernels stand for; ``forward`` and ``backward`` are their steps, the product first.

    ``pick`` takes the class of each row of the log_softmax, or of its product ``weighted`` with weights of classes;
    ``total`` (or None) is its sum over the classes. ``beside`` are steps that must not share a kernel with others.
    Fusion gives calls that stay other operands: what they read is asked for when it is needed.
    """

    product: ir.Operation
    softmax: LogSoftmax
    pick: ir.Operation
    weighted: ir.Operation | None
    total: ir.Operation | None
    gradient: Gradient | None
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    beside: tuple[int, ...]
    logits: TensorType

    @property
    def rows(self) -> ir.Value:
        return factors(self.product)[0]

    @property
    def bias(self) -> ir.Value | None:
        return self.product.operands[0] if has_bias(self.product) else None

    @property
    def weight(self) -> ir.Value:
        weight = weight_of(self.product)
        assert weight is not None
        return weight

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*self.forward, *self.backward)

    @property
    def classes(self) -> int:
        return self.logits.shape[-1]

    @property
    def spared_bytes(self) -> int:
        """Of the logits, as they are multiplied and in f32, which are held from forward to backward."""
        return self.logits.size_bytes + (4 * self.logits.numel if self.logits.dtype != torch.float32 else 0)


@dataclass(frozen=True)
class Apart:
    """A product and a softmax, by the numbers of their steps, which are no such kernel, and why not."""

    first: int
    second: int
    why: str
    logits: TensorType
