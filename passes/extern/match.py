"""Matching of contractions in a block: matmuls, each with the epilogue that is its only reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader, target_name
from shardc.dialects.kern.size import AnySize, Size, hint, quotient, symbols_of
from shardc.dialects.kern.strides import Strides
from shardc.passes.extern.contraction import ADD, DTYPES, POST_OPS, Contraction
from shardc.passes.extern.layouts import RESHAPES, Layouts
from shardc.passes.fuse.reading.symbols import Symbols

MATMULS = ("aten.mm", "aten.addmm")


@dataclass
class Matched:
    """A contraction in the program. Tensors are named as in :class:`LibraryCall`; ``between`` are views."""

    contraction: Contraction
    product: ir.Operation
    operands: dict[str, ir.Value]
    between: list[ir.Operation] = field(default_factory=list)
    epilogue: ir.Operation | None = None


def find_contractions(
    block: ir.Block, strides: Mapping[ir.Value, Strides], rounding: str
) -> Iterator[Matched]:
    """Yield the contractions of a block, last first and lazily, since one may become another's operand.

    ``strides`` are those of arguments that are not contiguous. A symbolic number of rows is rounded up to a
    power of two from that of the traced call, so that a measurement holds for similar numbers. Under the
    rounding ``eager``, 16-bit contractions have no epilogue, because eager rounds before it.
    """
    symbols = Symbols(block)
    reader, layouts = CallReader(), Layouts(strides, symbols)
    for view in reversed(list(block.operations)):
        op = view.operation
        if op.name.startswith("torch.") and target_name(op) in MATMULS:
            match = _product(reader.read(op), layouts, symbols)
            if match is not None:
                rounds = rounding == "eager" and match.contraction.dtype != torch.float32
                yield match if rounds else _with_epilogue(match, reader, symbols)


def _product(call: Call, layouts: Layouts, symbols: Symbols) -> Matched | None:
    """Return the contraction of a matmul; None for a form, dtype or layout that only ATen supports."""
    names = ("left", "right") if call.spec.target == "aten.mm" else ("bias", "left", "right")
    operands: dict[str, ir.Value] = dict(zip(names, call.operands, strict=True))
    types = {name: type_ for name, value in operands.items() if (type_ := symbols.type(value)) is not None}
    (m, k), (_, n) = types["left"].shape, types["right"].shape
    if "bias" in types and (types["bias"].shape != (n,) or call.spec["alpha"] != 1 or call.spec["beta"] != 1):
        return None
    sizes, dtypes = (m, k, n), {t.dtype for t in types.values()}
    if None in sizes or 0 in sizes or len(dtypes) > 1 or types["left"].dtype not in DTYPES:
        return None
    if symbols_of((k, n)):  # oneDNN does not support empty sums
        return None
    by_row = [_by_row(types[name].shape, layouts.of(operands[name])) for name in ("left", "right")]
    if None in by_row:
        return None
    left, right = (bool(rows) for rows in by_row)
    rows = 1 << (hint(m) - 1).bit_length() if isinstance(m, Size) else m
    contraction = Contraction(rows, k, n, types["left"].dtype, left, right, "bias" in types)
    return Matched(contraction, call.op, operands)


def _by_row(shape: tuple[AnySize, ...], strides: tuple[AnySize, ...] | None) -> bool | None:
    """Return whether a matrix is stored by rows (True) or by columns (False); None for other layouts."""
    if strides is None:
        return None
    (rows, columns), (down, along) = shape, strides
    if (along == 1 or columns == 1) and (_at_least(down, columns) or rows == 1):
        return True
    return False if (down == 1 or rows == 1) and (_at_least(along, rows) or columns == 1) else None


def _at_least(stride: AnySize, size: AnySize) -> bool:
    """Return whether ``stride >= size`` is known to hold."""
    if isinstance(stride, int) and isinstance(size, int):
        return stride >= size
    return quotient(stride, size) is not None


def _with_epilogue(match: Matched, reader: CallReader, symbols: Symbols) -> Matched:
    """Return the match with its epilogue: a call that is the only reader of the product, through reshapes."""
    value, between = match.product.results[0], []
    while (user := _only_user(value)) is not None and user.name.startswith("torch."):
        if target_name(user) not in RESHAPES:
            return _joined(match, between, user, reader, symbols)
        between.append(user)
        value = user.results[0]
    return match


def _joined(
    match: Matched, between: list[ir.Operation], user: ir.Operation, reader: CallReader, symbols: Symbols
) -> Matched:
    target = target_name(user)
    if target not in POST_OPS and target != ADD:
        return match
    call = reader.read(user)
    found = Matched(match.contraction, match.product, dict(match.operands), between, user)
    if target == ADD:
        value = (between[-1] if between else match.product).results[0]
        others = [v for v in call.operands if v != value]
        types = [symbols.type(v) for v in (value, *others, user.results[0])]
        same = len(types) == 3 and len(set(types)) == 1 and types[0] is not None and types[0].is_static
        if not same or call.spec["alpha"] != 1:
            return match
        found.operands["other"] = others[0]
    approximate = call.spec["approximate"] if target == "aten.gelu" else ""
    found.contraction = replace(match.contraction, epilogue=target, approximate=approximate)
    return found


def _only_user(value: ir.Value) -> ir.Operation | None:
    users = [use.owner.operation for use in value.uses]
    return users[0] if len(users) == 1 else None
