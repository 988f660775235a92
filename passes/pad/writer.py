"""Ops that add, remove or fill padding. All are ATen calls with rules."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.passes.pad.span import Padding, Span, Spans, is_tail, padded_size, segments
from shardc.passes.partition.local_call import CallWriter, type_of


class PadWriter(CallWriter):
    """Writer of these ops at the end of a block.

    Every filled value has its own mask, because a shared mask would have one layout for all.
    """

    def __init__(self, block: ir.Block, builder: CallBuilder) -> None:
        super().__init__(builder, ir.Location.unknown(block.owner.context), ir.InsertionPoint(block))
        self._made: dict[object, ir.Value] = {}

    def place(self, location: ir.Location, attributes: Mapping[str, ir.Attribute]) -> None:
        """Set the source location and the phase of the next ops."""
        self.loc, self.attributes = location, attributes

    def masked(
        self, value: ir.Value, dim: int, size: int, spans: Spans, span: Span, number: float
    ) -> ir.Value:
        """Return ``value`` with ``number`` in the padding of ``span``, one of the ``spans`` of a dim of true
        ``size``.
        """
        key = ("masked", value, dim, span, number)
        if key not in self._made:
            type_ = type_of(value)
            keep = self._mask(size, spans, span, len(type_.shape) - dim - 1)
            self._made[key] = self._chosen(keep, value, number, type_.dtype)
        return self._made[key]

    def _chosen(self, keep: ir.Value, value: ir.Value, number: float, dtype: torch.dtype) -> ir.Value:
        if dtype != torch.bool:
            return self.call("aten.where.ScalarOther", keep, value, as_number(number, dtype))
        if number <= 0:
            return self.call("aten.logical_and", keep, value)
        return self.call("aten.logical_or", self.call("aten.logical_not", keep), value)

    def converted(self, value: ir.Value, shape: tuple[int, ...], have: Padding, want: Padding) -> ir.Value:
        """Convert ``value``, of true ``shape``, from padding ``have`` to padding ``want``; new padding holds
        zeros.
        """
        # The key has the phase, so that a parameter gathered for one phase is not kept for another.
        key = ("converted", value, have, want, self.attributes.get("dist.phase"))
        if key not in self._made:
            both = tuple(tuple(s for s in h if s in w) for h, w in zip(have, want, strict=True))
            trimmed = self._resized(value, shape, have, both)
            self._made[key] = self._resized(trimmed, shape, both, want)
        return self._made[key]

    def _mask(self, size: int, spans: Spans, span: Span, after: int) -> ir.Value:
        """Return a mask of the true elements along a dim, shaped for ``after`` more dims behind it."""
        parts = segments(size, spans)
        at = [s for _, _, s in parts].index(span)
        outer, inner = (prod(padded for _, padded, _ in part) for part in (parts[:at], parts[at + 1 :]))
        found = self.call("aten.lt.Scalar", self.call("aten.arange", span.padded, torch.int64), span.size)
        if outer * inner > 1:
            found = self.call("aten.reshape", found, (1, span.padded, 1))
            found = self.call("aten.expand", found, (outer, span.padded, inner))
        shape = (padded_size(size, spans), *(1,) * after)
        return found if type_of(found).shape == shape else self.call("aten.reshape", found, shape)

    def _resized(self, value: ir.Value, shape: tuple[int, ...], have: Padding, want: Padding) -> ir.Value:
        """Resize dim by dim; in each dim one of ``have`` and ``want`` contains the other."""
        for dim, size in enumerate(shape):
            if have[dim] != want[dim]:
                value = self._resized_dim(value, dim, size, have[dim], want[dim])
        return value

    def _resized_dim(self, value: ir.Value, dim: int, size: int, have: Spans, want: Spans) -> ir.Value:
        before, more = type_of(value).shape, max(have, want, key=len)
        wanted = padded_size(size, want)
        if is_tail(size, more):
            return self._resized_part(value, dim, wanted)
        parts = segments(size, more)
        sizes = lambda which: [padded if s in which else true for true, padded, s in parts]  # noqa: E731
        made = self.call("aten.reshape", value, (*before[:dim], *sizes(have), *before[dim + 1 :]))
        for i, n in enumerate(sizes(want)):
            made = self._resized_part(made, dim + i, n)
        return self.call("aten.reshape", made, (*before[:dim], wanted, *before[dim + 1 :]))

    def _resized_part(self, value: ir.Value, dim: int, size: int) -> ir.Value:
        shape = type_of(value).shape
        if shape[dim] == size:
            return value
        if shape[dim] > size:
            return self.call("aten.slice.Tensor", value, dim, 0, size, 1)
        after = (0, 0) * (len(shape) - dim - 1)
        return self.call("aten.constant_pad_nd", value, (*after, 0, size - shape[dim]), 0)


def as_number(number: float, dtype: torch.dtype) -> float | int:
    """Convert ``number`` to a dtype's kind; infinities become the extremes of an integer dtype."""
    if dtype.is_floating_point or dtype.is_complex:
        return number
    limits = torch.iinfo(dtype)
    return limits.max if number == inf else limits.min if number == -inf else int(number)
