"""``kern-extern``: assigns matmuls that are not in kernels to a library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.cli import BadPassOption
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.kern.extern import extern
from shardc.dialects.kern.strides import argument_strides
from shardc.passes.extern.contraction import LIBRARIES, Contraction, LibraryCall, forms
from shardc.passes.extern.match import Matched, find_contractions
from shardc.passes.fuse.reading.values import owner_of, type_of
from shardc.passes.ingest.torch_share import drop_unread
from shardc.passes.manager.attributes import copy_attributes, drop_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import program_functions, step_blocks
from shardc.runtime.torch_private import disable_current_modes

Choose = Callable[[Contraction], str]
"""Chooses one of a contraction's :func:`~shardc.passes.extern.contraction.forms` by name."""


@dataclass(frozen=True)
class KernExtern(Pass):
    """Turns matmuls and their epilogues into ``kern.extern`` calls of a library.

    Applies to ``aten.mm`` and ``aten.addmm`` of f32 and bf16. The epilogue is a pointwise call (gelu, silu,
    tanh, sigmoid, the sum with a second matrix) that is the only reader of the product. Runs after
    ``kern-fuse``, on the remaining calls. ``library``: ``onednn`` takes every matmul that it supports,
    ``aten`` none; drivers choose by measurement. ``rounding``: under ``eager``, epilogues of 16-bit matmuls
    are not fused, because eager rounds before them.
    """

    name: ClassVar[str] = "kern-extern"
    library: str = "onednn"
    rounding: str = "fused"

    def run(self, module: ir.Module) -> None:
        if self.library not in LIBRARIES:
            expected = " or ".join(LIBRARIES)
            raise BadPassOption(pass_name=self.name, option="library", text=self.library, expected=expected)
        extern_module(module, lambda contraction: self.library, self.rounding)


def extern_module(module: ir.Module, choose: Choose, rounding: str = "fused") -> int:
    """Rewrite the program's contractions by ``choose``. Return how many no longer use ATen."""
    with disable_current_modes():  # an enclosing compile's fake tensors would make this slow
        return sum(_choose_in(function, choose, rounding) for function in program_functions(module))


def _choose_in(function: ir.Operation, choose: Choose, rounding: str) -> int:
    count, given = 0, argument_strides(function)
    for block in step_blocks(function.regions[0].blocks[0]):
        writer = _Writer(block)
        for match in find_contractions(block, given, rounding):
            available = forms(match.contraction)
            chosen = choose(match.contraction)
            if chosen != "aten" and chosen in available:
                writer.write(match, available[chosen])
                count += 1
        drop_unread(block)
    return count


class _Writer:
    """Writes chosen calls into one block."""

    def __init__(self, block: ir.Block) -> None:
        self._builder = CallBuilder(block)

    def write(self, match: Matched, calls: list[LibraryCall]) -> None:
        """Replace the match by ``calls``; ATen's calls after the first stay as they are in the program."""
        inside = match.epilogue is not None and len(calls) == 1
        last = match.epilogue if match.epilogue is not None and inside else match.product
        loc, ip = last.location, ir.InsertionPoint(last)
        if inside:
            loc = ir.Location.fused([match.product.location, last.location], context=last.context)
        type_, product = type_of(last.results[0]), type_of(match.product.results[0])
        reads = {name: self._operand(match, slot, product, loc, ip) for name, slot in calls[0].reads.items()}
        (made,), op = extern(calls[0].target, reads, calls[0].arguments, [product], loc=loc, ip=ip)
        copy_attributes(last, op, "dist.phase")
        result = made if type_ == product else self._seen_as(made, match, ip)
        copy_attributes(last, result.owner, "dist.name", "dist.shardings")
        last.results[0].replace_all_uses_with(result)
        for dead in [match.epilogue, *reversed(match.between), match.product] if inside else [match.product]:
            assert dead is not None
            dead.erase()

    def _operand(
        self, match: Matched, slot: str, product: TensorType, loc: ir.Location, ip: ir.InsertionPoint
    ) -> ir.Value:
        if slot == "right_t":
            return self._transposed(match.operands["right"], loc, ip)
        value = match.operands[slot]
        if slot != "other" or read_type(value.type) == product:
            return value
        sizes = tuple(-1 if n is None else n for n in product.shape)  # only rows may be symbolic
        return self._builder.call("aten.view", [value, sizes], [product], loc, ip).results[0]

    def _transposed(self, value: ir.Value, loc: ir.Location, ip: ir.InsertionPoint) -> ir.Value:
        """Return a matrix's transpose, or the original of a transposed matrix."""
        owner, type_ = owner_of(value), type_of(value)
        if owner is not None and owner.name == "torch.aten.t":
            return owner.operands[0]
        turned = type_.with_shape(type_.shape[::-1])
        return self._builder.call("aten.t", [value], [turned], loc, ip).results[0]

    def _seen_as(self, made: ir.Value, match: Matched, ip: ir.InsertionPoint) -> ir.Value:
        """Return the product in the shape that the epilogue reads."""
        view = match.between[-1].clone(ip=ip)
        view.operands[0] = made
        drop_attributes(view, "dist.name")  # the named value no longer exists
        return view.results[0]
