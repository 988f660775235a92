"""What is behind the gradient of a log_softmax: conversions, and products with the weight and the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import CallReader, target_name
from shardc.passes.fuse.captures import captured
from shardc.passes.fuse.linear_loss.calls import (
    LINKS,
    PRODUCT,
    TURNS,
    factors,
    has_bias,
    is_view,
    maker,
    readers,
    target_of,
    type_of,
    weight_of,
)
from shardc.passes.fuse.linear_loss.loss import Gradient, LogSoftmax, Refused
from shardc.passes.fuse.linear_loss.softmax import SUM, is_sum

GRADIENT = "aten._log_softmax_backward_data"
SCATTERS = ("aten.scatter.value", "aten.scatter.src")
_NO_CLASS = "the gradient is not of one class a row"
_KEPT = "the gradient of the logits is kept"


@dataclass(frozen=True)
class GradientReader:
    """Reads what is behind one product and its log_softmax."""

    product: ir.Operation
    softmax: LogSoftmax
    read: CallReader

    def gradient(self, op: ir.Operation) -> Gradient:
        """``op`` reads the log_softmax for its gradient: the one call that computes it, or the exponential of its
        parts.
        """
        last, fall = self._last(op)
        probabilities = None if fall is None else op
        given = last.operands[0]
        sums = self._sums(given, last)
        scaled, spread, added = self._given(given)
        scatter, side = self._scatter(scaled)
        zeros, kept = self._zeros(scatter)
        links, slopes = self._slopes(last)
        rows, weight, bias = self._products(slopes)
        inside = (
            *zeros,
            kept,
            scatter,
            *self._spread_out(scaled.operands[side]),
            scaled,
            *added,
            probabilities,
            fall,
            sums,
        )
        ops = (*inside, last, *links, rows, weight, bias)
        calls = tuple(call for call in ops if call is not None)
        return Gradient(
            scaled, side, scatter, spread, sums, probabilities, fall, kept, rows, weight, bias, calls
        )

    def _last(self, op: ir.Operation) -> tuple[ir.Operation, ir.Operation | None]:
        """The call that makes the slopes of logits, and the product with probabilities in front of it."""
        if target_of(op) == GRADIENT:
            return op, None
        falls = readers(op.results[0])
        fall = falls[0] if len(falls) == 1 and target_of(falls[0]) == "aten.mul.Tensor" else None
        lasts = [] if fall is None else readers(fall.results[0])
        if fall is None or len(lasts) != 1 or target_of(lasts[0]) != "aten.sub.Tensor":
            raise Refused(_NO_CLASS)
        spec, (last,) = self.read.read(lasts[0]).spec, lasts
        others = [value for value in list(fall.operands)[:2] if value != op.results[0]]
        is_number = len(others) == 1 and type_of(others[0]).shape == (spec["self"].shape[0], 1)
        if last.operands[1] != fall.results[0] or spec["alpha"] != 1 or not is_number:
            raise Refused(_NO_CLASS)
        return last, fall

    def _sums(self, given: ir.Value, last: ir.Operation) -> ir.Operation | None:
        """What adds up the gradient of each row's log_softmax, of which nobody else reads anything."""
        others = [op for op in readers(given) if op != last]
        if not others:
            return None
        if len(others) > 1 or not is_sum(others[0], self.read, keepdim=True) or target_of(others[0]) != SUM:
            raise Refused(_NO_CLASS)
        return others[0]

    def _given(self, given: ir.Value) -> tuple[ir.Operation, ir.Operation | None, list[ir.Operation]]:
        """The product with the class of each row, what is expanded to all classes, and the sum of both."""
        op = maker(given)
        if op is None or target_name(op) != "aten.add.Tensor":
            return self._product(given), None, []
        sides = [maker(side) for side in list(op.operands)[:2]]
        spreads = [side for side in sides if side is not None and target_name(side) == "aten.expand"]
        if len(spreads) != 1 or self.read.read(op).spec["alpha"] != 1:
            raise Refused(_NO_CLASS)
        (spread,) = spreads
        scaled = op.operands[1 if op.operands[0] == spread.results[0] else 0]
        if (
            readers(scaled) != [op]
            or readers(spread.results[0]) != [op]
            or not self._is_number(spread.operands[0])
        ):
            raise Refused(_NO_CLASS)
        return self._product(scaled), spread, [op]

    def _product(self, value: ir.Value) -> ir.Operation:
        op = maker(value)
        if op is None or target_name(op) != "aten.mul.Tensor":
            raise Refused(_NO_CLASS)
        return op

    def _is_number(self, value: ir.Value) -> bool:
        """Whether a value is a number for each row, or for all."""
        count, type_ = type_of(self.softmax.logp).shape[0], type_of(value)
        return type_.dtype == torch.float32 and type_.shape in ((count, 1), (1, 1), (1,), ())

    def _scatter(self, scaled: ir.Operation) -> tuple[ir.Operation, int]:
        """What has the class of each row, and which operand it is multiplied with."""
        sides = list(scaled.operands)[:2]
        makers = [maker(side) for side in sides]
        found = [n for n, op in enumerate(makers) if op is not None and target_name(op) in SCATTERS]
        if len(found) != 1:
            raise Refused(_NO_CLASS)
        scatter, side = makers[found[0]], 1 - found[0]
        assert scatter is not None
        if readers(scatter.results[0]) != [scaled] or not is_of_rows(scatter, self.read):
            raise Refused(_NO_CLASS)
        if (
            target_name(scatter) == "aten.scatter.src"
            and self.read.read(scatter).spec["src"].shape != type_of(self._index(scatter)).shape
        ):
            raise Refused(_NO_CLASS)
        return scatter, side

    def _index(self, scatter: ir.Operation) -> ir.Value:
        return self.read.read(scatter).operands[1]

    def _zeros(self, scatter: ir.Operation) -> tuple[list[ir.Operation], ir.Operation | None]:
        """The call that makes the zeros that ``scatter`` changes, if it is for that alone, and what else reads them."""
        value = scatter.operands[0]
        zeros = maker(captured(value))
        if zeros is None:
            raise Refused(_NO_CLASS)
        is_full = target_name(zeros) == "aten.full"
        is_zero = (
            self.read.read(zeros).spec["fill_value"] == 0 if is_full else target_name(zeros) == "aten.zeros"
        )
        if not is_zero:
            raise Refused(_NO_CLASS)
        others = [op for op in readers(value) if op != scatter]
        kept = [op for op in others if target_of(op) == "aten.gather" and op.operands[0] == value]
        alone = zeros.block == scatter.block and len(others) == len(kept) <= 1
        return [zeros] if alone else [], kept[0] if len(kept) == 1 else None

    def _spread_out(self, value: ir.Value) -> list[ir.Operation]:
        """The calls that make ``value``, a number for each row and class, of what is one for each of the one or the
        other: weights of classes, and 0 for rows that are ignored.
        """
        type_ = type_of(value)
        if self._is_number(value) or (
            type_.dtype == torch.float32 and type_.shape == (1, type_of(self.softmax.logp).shape[1])
        ):
            return []
        op = maker(value)
        if (
            op is None
            or target_name(op) not in ("aten.where.self", "aten.mul.Tensor")
            or len(readers(value)) != 1
        ):
            raise Refused(_NO_CLASS)
        spec = self.read.read(op).spec
        if target_name(op) == "aten.where.self":
            masks, values = [spec["condition"]], list(op.operands)[1:]
            count = type_.shape[0]
            if any(mask.shape not in ((count, 1), (1, 1), (1,), ()) for mask in masks):
                raise Refused(_NO_CLASS)
        else:
            values = list(op.operands)[:2]
        return [*(inner for side in values for inner in self._spread_out(side)), op]

    def _slopes(self, last: ir.Operation) -> tuple[list[ir.Operation], ir.Value]:
        """The calls behind the gradient of the softmax, to the gradient of the product."""
        links, value = [], last.results[0]
        while True:
            behind = readers(value)
            if len(behind) != 1 or target_of(behind[0]) not in LINKS:
                return links, value
            (reader,) = behind
            if not is_view(reader):
                links.append(reader)
            value = reader.results[0]

    def _products(
        self, slopes: ir.Value
    ) -> tuple[ir.Operation | None, ir.Operation | None, ir.Operation | None]:
        """The products of ``slopes`` [rows, classes] with the weight, and of its transpose with the rows; their sum
        over the rows, if the layer has a bias.
        """
        (rows, _), weight = factors(self.product), weight_of(self.product)
        assert weight is not None
        to_rows, to_weight, to_bias = [], [], []
        for op in readers(slopes):
            target = target_of(op)
            if target == PRODUCT and op.operands[0] == slopes and type_of(op.operands[1]) == type_of(weight):
                to_rows.append(op)
            elif target in TURNS:
                behind = readers(op.results[0])
                for product in behind:
                    is_product = target_of(product) == PRODUCT and product.operands[0] == op.results[0]
                    if not is_product or product.operands[1] != rows:
                        raise Refused(_KEPT)
                to_weight += behind
            elif target == SUM and has_bias(self.product) and self._sums_rows(op):
                to_bias.append(op)
            else:
                raise Refused(_KEPT)
        if max(map(len, (to_rows, to_weight, to_bias))) > 1 or not to_rows + to_weight:
            raise Refused("the gradient of the logits is not that of a linear layer")
        return _one(to_rows), _one(to_weight), _one(to_bias)

    def _sums_rows(self, op: ir.Operation) -> bool:
        spec = self.read.read(op).spec
        (made,) = spec.results
        return (
            [dim % 2 for dim in spec["dim"]] == [0] and made is not None and made.dtype == spec["self"].dtype
        )


def is_of_rows(op: ir.Operation, read: CallReader) -> bool:
    """Whether a gather or scatter is of one class for each row."""
    spec = read.read(op).spec
    rows, index = spec["self"].shape[0], spec["index"]
    sparse = target_name(op) == "aten.gather" and spec["sparse_grad"]
    return spec["dim"] % 2 == 1 and index.shape == (rows, 1) and not sparse and index.dtype == torch.int64


def _one(ops: Sequence[ir.Operation]) -> ir.Operation | None:
    return ops[0] if ops else None
