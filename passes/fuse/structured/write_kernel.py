"""Writer of kernels whose body is one op of ``kern``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.build import At
from shardc.dialects.kern.kernel import kernel
from shardc.dialects.kern.size import Symbol, symbols_of
from shardc.dialects.kern.types import builtin_type
from shardc.passes.fuse.reading.symbols import Symbols


def write_kernel(
    name: str,
    tensors: Sequence[ir.Value],
    results: Sequence[TensorType],
    symbols: Symbols,
    numbers: Mapping[ir.Value, int] | None = None,
    **at: Unpack[At],
) -> tuple[list[ir.Value], list[ir.Value], ir.Operation, At]:
    """Write a kernel without its body.

    Its inputs are ``tensors``, all symbolic sizes, and ``numbers``: integers of the program, each with its
    likely value.

    Returns:
        The tensors and numbers inside the body, the results, the op, and the location and insertion point for
        the body.
    """
    read = [(value, symbols.known_type(value)) for value in tensors]
    types = [type_ for _, type_ in read]
    sizes = sorted(symbols_of(n for t in (*types, *results) for n in t.shape))
    given = numbers or {}
    ins = [*tensors, *(symbols.number(size, read, at["ip"]) for size in sizes), *given]
    sizes += [Symbol(len(sizes) + number, likely) for number, likely in enumerate(given.values())]
    arguments, shapes = [builtin_type(t, at["loc"].context) for t in types], [t.shape for t in types]
    body, made, op = kernel(name, ins, arguments, results, symbols=sizes, shapes=shapes, **at)
    symbols.note(made[0].owner, results)
    inside = At(loc=at["loc"], ip=ir.InsertionPoint(body))
    arguments_of = list(body.arguments)
    return [*arguments_of[: len(read)], *arguments_of[len(ins) - len(given) :]], made, op, inside
