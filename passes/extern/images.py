"""Which images of a program lie, or may lie, with channels last at no cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader, is_constant
from shardc.dialects.aten.schema import UnknownOperator, overload
from shardc.dialects.kern.strides import Strides
from shardc.passes.extern.convolution import IMAGES
from shardc.passes.extern.layouts import Layouts
from shardc.passes.fuse.lower.table import lowered_targets
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import turn_of
from shardc.passes.fuse.reading.view import VIEWS

REDUCTIONS = frozenset(
    f"aten.{name}"
    for names in (
        "amax amin argmax argmin max.dim min.dim mean mean.dim sum sum.dim_IntList logsumexp _softmax",
        "_log_softmax var.correction var_mean.correction std.correction clone native_layer_norm",
    )
    for name in names.split()
)
"""Ops that may read channels last besides pointwise ones. Pools and group norms then take far longer."""

TURN = "aten.permute"


def channels_last(rank: int) -> tuple[int, ...]:
    """Return the dims of [N, C, pixels...] in the order [N, pixels..., C]."""
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> tuple[int, ...]:
    """Return the dims of [N, pixels..., C] in the order [N, C, pixels...]."""
    return (0, rank - 1, *range(1, rank - 1))


class Images:
    """Layouts of a block's images, seen from one convolution at a time, in program order.

    ``strides``: those of arguments that are not contiguous. ``returned``: strides that callers expect of
    results. ``likes``: whether a convolution is faster with channels last if nothing is copied.
    """

    def __init__(
        self,
        reader: CallReader,
        strides: Mapping[ir.Value, Strides],
        symbols: Symbols,
        returned: Sequence[object],
        likes: Callable[[Call], bool],
    ) -> None:
        self._reader, self._returned, self._likes = reader, returned, likes
        self._layouts = Layouts(strides, symbols)
        self._lowered = lowered_targets()
        self._last = {value for value, known in strides.items() if _is_channels_last(value, known, reader)}

    def see(self, op: ir.Operation) -> Call | None:
        """Note the layouts of an op's results, and return its call; None if it is no call."""
        call = self._call(op)
        if call is not None and self.turns(call, channels_first):
            if _is_channels_last(call.results[0], self._layouts.of(call.results[0]), self._reader):
                self._last.add(call.results[0])
            return call
        if call is None or not self._is_pointwise(call.spec.target):
            return call
        for value, made in zip(call.results, call.spec.results, strict=True):
            same = [
                o
                for o in call.operands
                if (t := self._reader.tensor_type(o.type)) and made is not None and t.shape == made.shape
            ]
            if any(operand in self._last for operand in same):
                self._last.add(value)
        return call

    def turns(self, call: Call, order: Callable[[int], Sequence[int]]) -> bool:
        """Return whether a call is a permute of an image's dims to ``order``."""
        rank = len(self._reader.tensor_type(call.results[0].type).shape) if call.spec.target == TURN else 0
        return 3 <= rank <= 5 and turn_of(call.spec, rank) == list(order(rank))

    def add_last(self, value: ir.Value) -> None:
        """Note that an image is the permuted result of a convolution with channels last."""
        self._last.add(value)

    def is_last(self, value: ir.Value) -> bool:
        """Return whether an image has channels last already, or a kernel can write it so."""
        return value in self._last

    def is_read_last(self, value: ir.Value) -> bool:
        """Return whether kernels and convolutions alone read an image, so that channels last cost nothing."""
        seen, left = {value}, [value]
        while left:
            for use in left.pop().uses:
                reader = use.owner.operation
                call = self._call(reader)
                if call is None:
                    if not self._is_returned_last(reader, use.operand_number):
                        return False
                elif call.spec.target in IMAGES:
                    if use.operand_number >= len(IMAGES[call.spec.target]) or not self._likes(call):
                        return False
                elif self.turns(call, channels_last):
                    continue
                elif not self._reads_any_layout(call.spec.target):
                    return False
                else:
                    type_ = self._reader.tensor_type(value.type)
                    same = [v for v in call.results if self._reader.tensor_type(v.type) == type_]
                    left += [v for v in same if v not in seen]
                    seen.update(same)
        return True

    def _reads_any_layout(self, target: str) -> bool:
        """Return whether an op's kernel is as fast with channels last: pointwise ops and some reductions."""
        return self._is_pointwise(target) or (target in REDUCTIONS and target not in VIEWS)

    def _is_pointwise(self, target: str) -> bool:
        return target in self._lowered and torch.Tag.pointwise in overload(target).tags

    def _is_returned_last(self, op: ir.Operation, number: int) -> bool:
        if op.name != "func.return" or number >= len(self._returned):
            return False
        return _is_channels_last(op.operands[number], self._returned[number], self._reader)

    def _call(self, op: ir.Operation) -> Call | None:
        if not op.name.startswith("torch.") or op.name.startswith("torch.prim") or is_constant(op):
            return None
        try:
            return self._reader.read(op)
        except UnknownOperator:
            return None


def _is_channels_last(value: ir.Value, strides: object, reader: CallReader) -> bool:
    type_ = reader.tensor_type(value.type)
    if type_ is None or not type_.is_static or not isinstance(strides, tuple) or len(strides) < 3:
        return False
    order = channels_last(len(type_.shape))
    wanted, step = {}, 1
    for dim in reversed(order):
        wanted[dim] = step
        step *= type_.shape[dim]
    return tuple(wanted[d] for d in range(len(order))) == tuple(strides)
