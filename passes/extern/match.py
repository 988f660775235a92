"""Finds contractions in a block: matmuls that are calls, with the one call that alone reads each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader, IntValue, fill, is_constant, leaves, target_name
from shardc.dialects.aten.schema import overload
from shardc.dialects.aten.types import read_type
from shardc.passes.extern.contraction import ADD, DTYPES, POST_OPS, Contraction

Strides = tuple[int, ...]

MATMULS = ("aten.mm", "aten.addmm")
RESHAPES = frozenset(("aten.view", "aten._unsafe_view", "aten.reshape"))
_VIEWS = RESHAPES | {"aten.t", "aten.transpose.int", "aten.permute", "aten.squeeze.dim", "aten.unsqueeze", "aten.slice.Tensor"}
"""Views whose strides are followed; what any other makes is left to ATen, which takes every layout."""


@dataclass
class Match:
    """A contraction in the program. ``operands`` are its tensors by the names of :class:`LibraryCall`; ``between`` are the
    views from the product to the epilogue, if there is one."""

    contraction: Contraction
    product: ir.Operation
    operands: dict[str, ir.Value]
    between: list[ir.Operation] = field(default_factory=list)
    epilogue: ir.Operation | None = None


def find_contractions(block: ir.Block, strides: Mapping[ir.Value, Strides], numerics: str) -> Iterator[Match]:
    """The contractions of a block, last first, each as it is when it is asked for: one may become another's operand.

    ``strides``: those of arguments that are not contiguous.

    Under the numerics ``eager``, 16-bit ones have no epilogue: eager rounds before it.
    """
    reader, layouts = CallReader(), _Layouts(strides)
    for view in reversed(list(block.operations)):
        op = view.operation
        if op.name.startswith("torch.") and target_name(op) in MATMULS:
            match = _product(reader.read(op), layouts)
            if match is not None:
                rounds = numerics == "eager" and match.contraction.dtype != torch.float32
                yield match if rounds else _with_epilogue(match, reader)


def _product(call: Call, layouts: _Layouts) -> Match | None:
    """The contraction of one matmul; None for a form, a dtype or a layout that only ATen takes."""
    names = ("left", "right") if call.spec.target == "aten.mm" else ("bias", "left", "right")
    types = dict(zip(names, call.spec.tensors, strict=True))
    operands = dict(zip(names, call.operands, strict=True))
    (m, k), (_, n) = types["left"].shape, types["right"].shape
    if "bias" in types and (types["bias"].shape != (n,) or call.spec["alpha"] != 1 or call.spec["beta"] != 1):
        return None
    sizes, dtypes = (m, k, n), {t.dtype for t in types.values()}
    if None in sizes or 0 in sizes or len(dtypes) > 1 or types["left"].dtype not in DTYPES:
        return None
    by_row = [_by_row(types[name].shape, layouts.of(operands[name])) for name in ("left", "right")]
    if None in by_row:
        return None
    left, right = (bool(rows) for rows in by_row)
    return Match(Contraction(m, k, n, types["left"].dtype, left, right, "bias" in types), call.op, operands)


def _by_row(shape: tuple[int, ...], strides: Strides | None) -> bool | None:
    """Whether a matrix lies in memory row by row (True) or column by column (False); None for any other layout."""
    if strides is None:
        return None
    (rows, columns), (down, along) = shape, strides
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return True
    return False if (down == 1 or rows == 1) and (along >= rows or columns == 1) else None


def _with_epilogue(match: Match, reader: CallReader) -> Match:
    """The match with the call that alone reads the product, through reshapes, if libraries have that call as an epilogue."""
    value, between = match.product.results[0], []
    while (user := _only_user(value)) is not None and user.name.startswith("torch."):
        if target_name(user) not in RESHAPES:
            return _joined(match, between, user, value, reader)
        between.append(user)
        value = user.results[0]
    return match


def _joined(
    match: Match, between: list[ir.Operation], user: ir.Operation, value: ir.Value, reader: CallReader
) -> Match:
    target = target_name(user)
    if target not in POST_OPS and target != ADD:
        return match
    call = reader.read(user)
    found = Match(match.contraction, match.product, dict(match.operands), between, user)
    if target == ADD:
        others = [v for v in call.operands if v != value]
        same = len(others) == 1 and read_type(others[0].type) == call.spec.results[0] == read_type(value.type)
        if not same or call.spec["alpha"] != 1:
            return match
        found.operands["other"] = others[0]
    approximate = call.spec["approximate"] if target == "aten.gelu" else ""
    found.contraction = replace(match.contraction, epilogue=target, approximate=approximate)
    return found


def _only_user(value: ir.Value) -> ir.Operation | None:
    users = [use.owner for use in value.uses]
    return users[0].operation if len(users) == 1 else None


class _Layouts:
    """The strides of values: of arguments as given, of what calls make contiguous, of views as PyTorch derives them."""

    def __init__(self, strides: Mapping[ir.Value, Strides]) -> None:
        self._strides, self._reader = strides, CallReader()

    def of(self, value: ir.Value) -> Strides | None:
        """None where a view is not understood."""
        tensor = self._tensor(value)
        return None if tensor is None else tuple(tensor.stride())

    def _tensor(self, value: ir.Value) -> torch.Tensor | None:
        """A tensor without memory that lies as ``value`` does."""
        type_ = read_type(value.type)
        if type_ is None or not type_.is_static:
            return None
        if value in self._strides:
            return torch.empty_strided(type_.shape, self._strides[value], dtype=type_.dtype, device="meta")
        owner = None if isinstance(value, ir.BlockArgument) else value.owner.operation
        if owner is not None and owner.name == "torch.operator" and not target_name(owner).startswith("aten."):
            return None  # a user's operator may lay out its results in any way
        if owner is None or not _is_view(owner):
            return torch.empty(type_.shape, dtype=type_.dtype, device="meta")
        call = self._reader.read(owner)
        if call.spec.target not in _VIEWS or any(isinstance(leaf, IntValue) for leaf in leaves(call.spec.args)):
            return None
        source = self._tensor(call.operands[0])
        target = "aten.reshape" if call.spec.target in RESHAPES else call.spec.target
        return None if source is None else _called(target, call.spec.args, [source])


def _is_view(op: ir.Operation) -> bool:
    if not op.name.startswith("torch.") or not target_name(op).startswith("aten.") or is_constant(op):
        return False
    return target_name(op) in RESHAPES or any(r.alias_info is not None for r in overload(target_name(op))._schema.returns)


def _called(target: str, args: tuple[object, ...], tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result of a call whose parameters are all positional."""
    return overload(target)(*fill(args, list(tensors)))

