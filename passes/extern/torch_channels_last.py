"""``torch-channels-last``: computes convolutions with channels last, or by a kernel, where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import Call, CallReader, fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.strides import argument_strides
from shardc.passes.extern.convolution import (
    DIRECT,
    FIRST,
    FORWARD,
    IMAGES,
    LAST,
    Convolution,
    Form,
    beside,
    direct,
    is_considered,
)
from shardc.passes.extern.images import Images, channels_first, channels_last
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import owner_of
from shardc.passes.fuse.structured.convolution import KERNEL
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import program_functions, step_blocks
from shardc.runtime.torch_private import disable_current_modes

Measure = Callable[[Convolution], Mapping[str, float]]
"""Returns the seconds of a convolution's forms, by name; forms that are missing are not used."""

GAIN = 0.95
"""Part of the time with channels first below which a convolution gets channels last."""
NOISE = 0.98
"""Part of the library's time below which a kernel is faster. Nothing around it changes."""


@dataclass(frozen=True)
class TorchChannelsLast(Pass):
    """``convolution(x)`` becomes ``permute(convolution_last(permute(x)))``, with channels as the last dim.

    Kernels that make ``x`` or read the result include the permutes, so that only images which no kernel
    makes or reads are copied. Runs before ``kern-fuse``, on convolutions of f32 and bf16 with known sizes.
    The pass rewrites all of them; drivers choose by measurement.
    """

    name: ClassVar[str] = "torch-channels-last"

    def run(self, module: ir.Module) -> None:
        relayout_module(module, lambda convolution: {str(FIRST): 1.0} | dict.fromkeys(_LASTS, 0.0))


_LASTS = [str(Form(True, given, made)) for given in (False, True) for made in (False, True)]


def relayout_module(module: ir.Module, measure: Measure, returned: Sequence[object] = ()) -> int:
    """Rewrite the program's convolutions by ``measure``. Return how many were.

    Those that are fastest with channels last become ``shardc.convolution_last``. Of the others, those that a
    kernel computes faster become ``shardc.convolution_direct``.

    ``returned``: for each result, the strides in which it must be returned; None for contiguous ones.
    """
    with disable_current_modes():
        return sum(
            _Writer(function, block, measure, returned).write()
            for function in program_functions(module)
            for block in step_blocks(function.regions[0].blocks[0])
        )


class _Writer:
    """Rewrites one block."""

    def __init__(
        self, function: ir.Operation, block: ir.Block, measure: Measure, returned: Sequence[object]
    ) -> None:
        self._block, self._reader, self._builder = block, CallReader(), CallBuilder(block)
        self._measure = measure
        strides, symbols = argument_strides(function), Symbols(block)
        self._images = Images(self._reader, strides, symbols, returned, self._is_liked)
        self._turned: dict[ir.Value, ir.Value] = {}

    def write(self) -> int:
        count = 0
        for op in [view.operation for view in self._block.operations]:
            call = self._images.see(op)
            if call is not None and self._images.turns(call, channels_first):
                if self._images.is_last(call.results[0]):
                    self._turned[call.results[0]] = call.operands[0]
                continue
            if call is None or not is_considered(call.spec):
                continue
            if self._is_faster(call):
                self._rewrite(call)
                count += 1
            elif self._is_direct(call):
                self._make_direct(call)
                count += 1
        return count

    def _is_liked(self, call: Call) -> bool:
        """Return whether a convolution is faster with channels last if nothing is copied."""
        return is_considered(call.spec) and self._compare(call, Form())

    def _is_faster(self, call: Call) -> bool:
        """Return whether a convolution is faster with channels last, in its place in the program."""
        given = all(map(self._images.is_last, _images_of(call)))
        made = not call.spec.results[0] or self._images.is_read_last(call.results[0])
        return self._compare(call, Form(True, not given, not made), [FIRST] if given else [FIRST, DIRECT])

    def _compare(self, call: Call, form: Form, others: Sequence[Form] = (FIRST, DIRECT)) -> bool:
        """Return whether a form with channels last is faster than others, with channels first."""
        seconds = self._measure(Convolution(call.spec))
        if str(form) not in seconds or str(FIRST) not in seconds:
            return False
        return seconds[str(form)] < GAIN * min(seconds[str(each)] for each in others if str(each) in seconds)

    def _is_direct(self, call: Call) -> bool:
        """Return whether a kernel is faster than the library, on images with channels first."""
        seconds = self._measure(Convolution(call.spec))
        if str(DIRECT) not in seconds or any(map(self._images.is_last, _images_of(call))):
            return False
        return seconds[str(DIRECT)] < NOISE * seconds[str(FIRST)]

    def _make_direct(self, call: Call) -> None:
        op, spec = call.op, call.spec
        marks = attributes_of(op, "dist.phase", "dist.module")
        at = op.location, ir.InsertionPoint(op)
        kernel, rest, results = direct(spec), beside(spec), list(op.results)
        tensors = call.operands if spec.target == FORWARD else [call.operands[0], call.operands[2]]
        made = self._builder.call(KERNEL, fill(kernel.args, tensors), kernel.results, *at, marks)
        copy_attributes(op, made)
        results[0].replace_all_uses_with(made.results[0])
        if rest is not None:
            other = self._builder.call(rest.target, fill(rest.args, call.operands), rest.results, *at, marks)
            for old, new in zip(results[1:], list(other.results)[1:], strict=True):
                old.replace_all_uses_with(new)
        op.erase()

    def _rewrite(self, call: Call) -> None:
        op, spec = call.op, call.spec
        loc, ip = op.location, ir.InsertionPoint(op)
        count = len(IMAGES[spec.target])
        operands = [self._last(value) for value in op.operands[:count]] + list(op.operands)[count:]
        image, *rest = spec.results
        types = [image and _last_type(image), *rest]
        marks = attributes_of(op, "dist.phase", "dist.module")
        made = self._builder.call(LAST[spec.target], operands, types, loc, ip, marks)
        results = list(made.results)
        if image is not None:
            self._turned[results[0]] = results[0]
            order = channels_first(len(image.shape))
            back = self._builder.call("aten.permute", (results[0], order), [image], loc, ip, marks)
            copy_attributes(op, back)
            results[0] = back.results[0]
            self._images.add_last(results[0])
            self._turned[results[0]] = made.results[0]
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()

    def _last(self, value: ir.Value) -> ir.Value:
        """Return an image with channels last, which a kernel can make. Each image is permuted once."""
        if value in self._turned:
            return self._turned[value]
        type_ = self._reader.tensor_type(value.type)
        assert type_ is not None, "operands of convolutions are tensors"
        owner = owner_of(value)
        ip = ir.InsertionPoint.at_block_begin(self._block) if owner is None else _after(owner)
        loc = ir.Location.unknown(value.type.context) if owner is None else owner.location
        order, last = channels_last(len(type_.shape)), _last_type(type_)
        turned = self._builder.call("aten.permute", (value, order), [last], loc, ip).results[0]
        if owner is not None:
            turned = self._builder.call("aten.clone", (turned, 0), [last], loc, ip).results[0]
        self._turned[value] = turned
        return turned


def _after(op: ir.Operation) -> ir.InsertionPoint:
    return ir.InsertionPoint.after(op)


def _images_of(call: Call) -> list[ir.Value]:
    return call.operands[: len(IMAGES[call.spec.target])]


def _last_type(type_: TensorType) -> TensorType:
    return type_.with_shape((type_.shape[0], *type_.shape[2:], type_.shape[1]))
