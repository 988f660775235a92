"""Where a linear layer with a cross entropy behind it becomes kernels, and why another does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import read_type
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.passes.fuse.linear_loss.calls import (
    factors,
    has_bias,
    is_view,
    maker,
    product_behind,
    readers,
    target_of,
    type_of,
    weight_of,
)
from shardc.passes.fuse.linear_loss.gradient import GRADIENT, GradientReader, is_of_rows
from shardc.passes.fuse.linear_loss.loss import Apart, LinearLoss, LogSoftmax, Refused
from shardc.passes.fuse.linear_loss.softmax import LARGEST, SOFTMAX, SUM, is_sum, log_softmax


class LossFinder:
    """Looks for losses among the ``steps`` of a block. With ``eager`` numerics logits of 16 bits are rounded, and so
    made.
    """

    def __init__(self, steps: Sequence[ir.Operation], numerics: str) -> None:
        self._steps, self._numerics, self._reader = steps, numerics, CallReader()
        self._numbers = {op.results[0]: number for number, op in enumerate(steps) if len(op.results)}

    def find(self, is_free: Callable[[int], bool]) -> Iterator[LinearLoss | Apart]:
        """``is_free`` says of a step whether it may be in a kernel."""
        for op in self._steps:
            if target_of(op) not in (SOFTMAX, LARGEST):
                continue
            masked = _masked(op.operands[0])
            product = product_behind(op.operands[0] if masked is None else masked.operands[1])
            if product is None:
                continue
            try:
                softmax = log_softmax(op, self._reader)
                if softmax is None:
                    continue
                if masked is not None:
                    raise Refused("logits are masked, as where classes do not divide by their devices")
                found = self._loss(softmax, product)
                if not all(map(is_free, found.numbers)):
                    raise Refused("one of their calls has to stay as it is")
                yield found
            except Refused as why:
                yield Apart(self._number(product), self._number(op), str(why), type_of(product.results[0]))

    def _loss(self, softmax: LogSoftmax, product: ir.Operation) -> LinearLoss:
        logits, weight = type_of(product.results[0]), weight_of(product)
        if has_bias(product) and not self._is_bias(product):
            raise Refused("what is added to the logits is no bias")
        links = self._links(softmax, product)
        if weight is None:
            raise Refused("the weight is not [classes, size]")
        if not type_of(factors(product)[0]).is_static or not type_of(weight).is_static:
            raise Refused("sizes are known at run time only")
        pick, weighted, total, behind = self._readers(softmax)
        gradient = None if behind is None else GradientReader(product, softmax, self._reader).gradient(behind)
        forward = [product, *links, *softmax.ops, weighted, pick, total]
        beside = (
            []
            if softmax.parts is None and total is None
            else self._makers(self._reader.read(pick).operands[1])
        )
        numbers = [
            [self._number(op) for op in dict.fromkeys(ops) if op is not None]
            for ops in (forward, [] if gradient is None else gradient.ops, beside)
        ]
        return LinearLoss(product, softmax, pick, weighted, total, gradient, *map(tuple, numbers), logits)

    def _links(self, softmax: LogSoftmax, product: ir.Operation) -> list[ir.Operation]:
        """The conversions from the product to the softmax; nobody else reads what is between."""
        value, allowed = softmax.logits, set(softmax.ops[:2])
        found, classes = [], type_of(product.results[0]).shape[-1]
        while True:
            for op in readers(value):
                if op not in allowed:
                    name = op.name.removeprefix("torch.")
                    says = (
                        "the program gives them to its caller"
                        if name == "func.return"
                        else f"{name} reads them, too"
                    )
                    raise Refused(f"the logits are kept: {says}")
            type_ = type_of(value)
            if type_.shape[-1] != classes:
                raise Refused("what lies between them is no view of rows")
            if type_.dtype not in FLOATS or (self._numerics == "eager" and type_.dtype != torch.float32):
                raise Refused(f"logits are rounded to {type_.dtype}")
            reader = maker(value)
            assert reader is not None
            if reader == product:
                return list(reversed(found))
            if not is_view(reader):
                found.append(reader)
            value, allowed = reader.operands[0], {reader}

    def _readers(
        self, softmax: LogSoftmax
    ) -> tuple[ir.Operation, ir.Operation | None, ir.Operation | None, ir.Operation | None]:
        """Who reads the logarithms of probabilities: what takes one class a row, maybe of their product with weights
        of classes, which comes second; what adds them up; and what makes the gradient.
        """
        picks, weighted, totals, gradients = [], [], [], []
        for op in readers(softmax.logp):
            target = target_of(op)
            if target == "aten.gather" and is_of_rows(op, self._reader):
                picks.append(op)
            elif target == "aten.mul.Tensor" and self._weights(op, softmax):
                weighted.append(op)
                behind = readers(op.results[0])
                if any(
                    target_of(other) != "aten.gather" or not is_of_rows(other, self._reader)
                    for other in behind
                ):
                    raise Refused("the logarithms of all probabilities are read, by weights of their classes")
                picks += behind
            elif target == SUM and is_sum(op, self._reader, keepdim=self._reader.read(op).spec["keepdim"]):
                totals.append(op)
            elif (
                target == "aten.exp"
                if softmax.parts
                else target == GRADIENT and op.operands[0] != softmax.logp
            ):
                gradients.append(op)
            else:
                raise Refused(f"{target} reads the logarithms of all probabilities")
        if len(picks) != 1 or max(map(len, (weighted, totals, gradients))) > 1:
            raise Refused("the loss is not of one class a row")
        return picks[0], *(found[0] if found else None for found in (weighted, totals, gradients))

    def _makers(self, index: ir.Value) -> list[ir.Operation]:
        """The calls that make the classes of rows from labels.

        The kernel makes more than what waits for the classes in the program: were these made in one kernel with what
        reads that, the two would wait for each other.
        """
        found: dict[ir.Operation, None] = {}
        waiting = [index]
        while waiting:
            value = waiting.pop()
            type_ = read_type(value.type)
            if isinstance(value.owner, ir.Block) or value.owner.operation in found:
                continue
            if type_ is not None and type_.dtype.is_floating_point:
                raise Refused("the classes of rows are computed from floating-point numbers")
            found[value.owner.operation] = None
            waiting += value.owner.operands
        return [
            op for op in found if op.results[0] in self._numbers and maker(op.results[0]) and not is_view(op)
        ]

    def _weights(self, op: ir.Operation, softmax: LogSoftmax) -> bool:
        """Whether ``op`` multiplies the logarithms with a weight of each class."""
        spec, (_, classes) = self._reader.read(op).spec, type_of(softmax.logp).shape
        return (
            op.operands[0] == softmax.logp
            and spec["other"].shape == (1, classes)
            and spec["other"].dtype == torch.float32
        )

    def _is_bias(self, product: ir.Operation) -> bool:
        spec = self._reader.read(product).spec
        bias, weight = spec["self"], spec["mat2"]
        return (
            bias.shape == weight.shape[1:]
            and bias.dtype == weight.dtype
            and spec["beta"] == spec["alpha"] == 1
        )

    def _number(self, op: ir.Operation) -> int:
        return self._numbers[op.results[0]]


def _masked(value: ir.Value) -> ir.Operation | None:
    """What masks logits, as ``dist-pad`` does; None for what is not masked."""
    op = maker(value)
    return op if op is not None and target_of(op) == "aten.where.ScalarOther" else None
