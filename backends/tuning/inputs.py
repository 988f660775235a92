"""Seeded random inputs for timing a kernel, on which the reference is finite."""

from __future__ import annotations

import torch
from torch_mlir import ir

from shardc.backends.body.signature import symbols_and_shapes
from shardc.dialects.kern.generic import GENERIC, GenericLoops, loop_of
from shardc.dialects.kern.scatter_add import scatter_add_of
from shardc.dialects.kern.size import hint
from shardc.dialects.kern.types import read_builtin

INTEGERS = 16
"""Upper limit of integers that are no indices."""
KINDS = ("normal", "positive", "first")
"""Kinds of inputs of :func:`make_inputs`, in the order in which to try them."""


def make_inputs(function: ir.Operation, kind: str, seed: int) -> list[torch.Tensor | int]:
    """Return an input for each argument of a function of ``extract``, at the sizes first seen.

    ``normal``: standard normal floats, with factors of long sums scaled so that sums are about 1. Indices are
    in range, and other integers below INTEGERS. Booleans are random. ``positive``: floats from 0.5 to 1.5,
    for roots and logarithms, and booleans are true. ``first``: like ``positive``, with all integers 0.
    """
    draw = torch.Generator().manual_seed(seed)
    symbols, shapes = symbols_and_shapes(function)
    arguments, bounds = list(function.regions[0].blocks[0].arguments), index_bounds(function)
    terms = sum_lengths(function)
    made: list[torch.Tensor | int] = []
    for number, argument in enumerate(arguments[: len(arguments) - len(symbols)]):
        type_ = read_builtin(argument.type)
        assert type_ is not None
        shape = [hint(n) for n in (shapes[number] if shapes else type_.shape)]
        if type_.dtype == torch.bool:
            coins = torch.rand(shape, generator=draw) < 0.5
            made.append(coins if kind == "normal" else torch.ones(shape, dtype=torch.bool))
        elif not type_.dtype.is_floating_point:
            below = 1 if kind == "first" else bounds.get(number, INTEGERS)
            made.append(torch.randint(below, shape, generator=draw, dtype=type_.dtype))
        elif kind == "normal":
            drawn = torch.randn(shape, generator=draw)
            made.append((drawn * terms.get(number, 1) ** -0.25).to(type_.dtype))
        else:
            made.append((torch.rand(shape, generator=draw) + 0.5).to(type_.dtype))
    return [*made, *(symbol.hint for symbol in symbols)]


def index_bounds(function: ir.Operation) -> dict[int, int]:
    """Return, for each argument that indexes something, the smallest size that it indexes."""
    block = function.regions[0].blocks[0]
    found: dict[int, int] = {}

    def note(value: ir.Value, bound: int) -> None:
        """Bound the arguments from which ``value`` is computed."""
        if isinstance(value, ir.BlockArgument):
            owner = value.owner.owner.operation
            if owner.name == "func.func":
                found[value.arg_number] = min(bound, found.get(value.arg_number, bound))
            else:
                note(owner.operands[value.arg_number], bound)
            return
        owner = value.owner.operation
        if owner.name == GENERIC:
            note(GenericLoops(owner).yielded[ir.OpResult(value).result_number], bound)
        elif owner.name in _INDICES:
            for operand in owner.operands:
                note(operand, bound)

    for view in block.operations:
        op = view.operation
        if op.name == "kern.scatter_add":
            note(op.operands[0], hint(scatter_add_of(op).rows))
        loops = GenericLoops(op)
        for each in loops.body_ops if op.name == GENERIC else ():
            if each.name == "tensor.extract":
                sizes = ir.RankedTensorType(each.operands[0].type).shape
                for index, size in zip(list(each.operands)[1:], sizes, strict=True):
                    note(index, max(1, size))
            elif each.name == "arith.cmpi" and (size := _loop_size(loops, each)):
                for operand in each.operands:
                    note(operand, size)
    return found


def sum_lengths(function: ir.Operation) -> dict[int, int]:
    """Return, for each factor of a sum of products, the number of terms of its longest sum."""
    found: dict[int, int] = {}

    def note(value: ir.Value, terms: int) -> None:
        if isinstance(value, ir.BlockArgument):
            found[value.arg_number] = max(terms, found.get(value.arg_number, 1))
            return
        owner = value.owner.operation
        if owner.name in _VIEWS or (owner.name == GENERIC and GenericLoops(owner).reduced_size() == 1):
            for operand in owner.operands:
                note(operand, terms)

    for view in function.regions[0].blocks[0].operations:
        loops = GenericLoops(view.operation)
        if view.operation.name == GENERIC and (terms := loops.reduced_size()) > 1:
            products = any(inner.name == "arith.mulf" for inner in loops.body_ops)
            factors = list(view.operation.operands)[:-1] if products else []
            for factor in factors if len(factors) > 1 else []:
                note(factor, terms)
    return found


_VIEWS = frozenset(("tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice"))
_CASTS = ("arith.index_cast", "arith.extsi")
_SCALARS = "index_cast index_castui extsi extui trunci select addi maxsi minsi"
_INDICES = _VIEWS | {f"arith.{name}" for name in _SCALARS.split()}
"""Ops whose operands are indices if their results are. A select's condition is not bounded."""


def _loop_size(loops: GenericLoops, compare: ir.Operation) -> int:
    """Return the size of the loop whose index is compared; 0 if there is none, or its size is symbolic."""
    for operand in compare.operands:
        while (made := loops.made_here(operand)) is not None and made.name in _CASTS:
            operand = made.operands[0]
        if (loop := loop_of(operand)) is not None:
            return loops.typed_sizes(0)[loop]
    return 0
