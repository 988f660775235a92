"""Kernels of sums at computed indices: gradients of embeddings and indexing, ``index_add``, ``scatter_add``.

If the sum is added to a tensor, such as a tied weight's other gradient, this tensor is the initial value of
the sum. The result is written once; in memory without other readers, only its indexed rows are written. Calls
that ``kern.scatter_add`` cannot express stay calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import Call, CallReader, IntValue, leaves, target_name
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.kernel import CHECKS, write_checks
from shardc.dialects.kern.scatter_add import scatter_add
from shardc.dialects.kern.size import hint, symbols_of
from shardc.dialects.kern.types import ELEMENTS, builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.bodies.bodies import in_program
from shardc.passes.fuse.bodies.body import Body
from shardc.passes.fuse.lower.table import ALONE_ELEMENTS
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import owner_of, target_of, turned
from shardc.passes.fuse.structured.write_kernel import write_kernel

ADD = "aten.add.Tensor"
INDEX_DTYPES = (torch.int64, torch.int32)
SHORT = 16
"""Parts of rows of 16 bits with fewer elements are left to ATen, because following chains of rows would cost
more.
"""

IsFree = Callable[[int], bool]
MayJoin = Callable[[int, int], bool]

_ZEROS = frozenset(("aten.zeros", "aten.zeros_like", "aten.new_zeros"))
_FULL = frozenset(("aten.full", "aten.full_like", "aten.new_full"))
_VIEWS = frozenset(("aten.view", "aten._unsafe_view"))


@dataclass(frozen=True)
class _Form:
    """Call as a sum. ``flat``: Size of a 1-d index. ``message``: Error text for a bad index ``{}``."""

    index: ir.Value
    updates: ir.Value
    init: ir.Value | None
    dim: int
    ignored: int | None = None
    wraps: bool = False
    message: str = ""
    flat: int | None = None


@dataclass(frozen=True)
class Scatter:
    """Call that becomes a kernel, with the call that adds its result to a tensor, if any.

    ``numbers`` are those of the steps. ``starts``: Whether the first call's sums start from a tensor of the
    program that is not all 0.
    """

    ops: tuple[ir.Operation, ...]
    numbers: tuple[int, ...]
    starts: bool
    type: TensorType

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the result, with likely values for symbolic sizes."""
        return hint(self.type.size_bytes)


def filled(op: ir.Operation) -> list[ir.Operation]:
    """Return the producer of the first operand of ``op`` if it fills a tensor with one number, and before it
    views of that tensor; an empty list for other producers.
    """
    found: list[ir.Operation] = []
    while (made := owner_of(op.operands[0])) is not None and target_of(made) in _VIEWS:
        found.append(op := made)
    return [*found, made] if made is not None and target_of(made) in _ZEROS | _FULL else []


class ScatterKernels:
    """Conversion of a block's sums at computed indices into kernels."""

    def __init__(self, block: ir.Block, symbols: Symbols) -> None:
        self._reader, self._builder, self._symbols = CallReader(), CallBuilder(block), symbols
        self._context = block.owner.context

    def find(
        self, steps: Sequence[ir.Operation], is_free: IsFree, may_join: MayJoin, rounding: str, lone: bool
    ) -> Iterator[Scatter]:
        """Yield those of ``steps`` that become kernels: the profitable ones, or all if they may be ``lone``.

        ``is_free`` returns whether a step may be in a kernel, ``may_join`` whether two may share one.
        """
        numbers = {op: number for number, op in enumerate(steps)}
        taken: set[ir.Operation] = set()
        for number, op in enumerate(steps):
            if target_of(op) not in _FORMS or not is_free(number):
                continue
            if self._is_kernel(op, lone):
                starts, type_ = self._starts(op), self._symbols.known_type(op.results[0])
                add = None if starts else self._sum_of(op, rounding)
                at = -1 if add is None or add in taken else numbers[add]
                if add is None or at < 0 or not is_free(at) or not may_join(number, at):
                    yield Scatter((op,), (number,), starts, type_)
                    continue
                taken.add(add)
                yield Scatter((op, add), (number, at), starts, type_)

    def _sum_of(self, op: ir.Operation, rounding: str) -> ir.Operation | None:
        """Return the call that adds the result of ``op`` to a tensor of its type, if it is the only reader.

        Returns None if the result is in 16 bits and ``rounding`` requires that it is rounded before this sum.
        """
        result, uses = op.results[0], [use.owner.operation for use in op.results[0].uses]
        type_ = self._symbols.known_type(result)
        if len(uses) != 1 or uses[0].name != f"torch.{ADD}" or uses[0].block != op.block:
            return None
        call, rounds = self._reader.read(uses[0]), rounding == "eager" and type_.dtype.itemsize == 2
        if len(call.operands) != 2 or call.spec["alpha"] != 1 or rounds:
            return None
        types = {self._symbols.type(v) for v in (*call.operands, *call.results)}
        return uses[0] if types == {type_} else None

    def updates(self, scatter: Scatter) -> ir.Value | None:
        """Return the tensor whose rows a sum adds; None if its kernel must read it.

        16-bit rows of several dims are divided into pieces across these dims.
        """
        form = self._form(scatter.ops[0])
        assert form is not None
        columns = [size for size in scatter.type.shape[form.dim + 1 :] if size != 1]
        is_divided = len(columns) > 1 and scatter.type.dtype.itemsize == 2
        return None if is_divided else form.updates

    def positions(self, scatter: Scatter) -> range:
        """Return the dims of the updates that are those of the index."""
        form = self._form(scatter.ops[0])
        assert form is not None
        rank = 1 if form.flat is not None else len(self._symbols.known_type(form.index).shape)
        return range(form.dim, form.dim + rank)

    def write(
        self,
        scatter: Scatter,
        name: str,
        terms: tuple[Body, list[ir.Value]] | None = None,
        positions: tuple[int, ...] | None = None,
    ) -> tuple[ir.Operation, ir.Value]:
        """Write the kernel for the scatter's ops, before the last of them; return it and its result.

        ``terms``: body that computes the updates inside the kernel, and the tensors that it reads.
        ``positions``: shape in which the kernel sees the index; None for its own.
        """
        first, last = scatter.ops[0], scatter.ops[-1]
        form = self._form(first)
        assert form is not None
        start = form.init if scatter.starts else None
        if last != first:
            start = next(v for v in list(last.operands)[:2] if v != first.results[0])
        loc = ir.Location.fused([o.location for o in scatter.ops], context=self._context)
        ip, index = ir.InsertionPoint(last), form.index
        seen = positions if positions is not None or form.flat is None else (form.flat,)
        if seen is not None:
            flat = TensorType(seen, self._symbols.known_type(index).dtype)
            index = self._builder.call("aten.view", (index, list(seen)), [flat], loc, ip).results[0]
        starts = [] if start is None else [self._behind(start)]
        tensors = [index, *([form.updates] if terms is None else []), *starts]
        more = [] if terms is None else terms[1]
        types = [scatter.type, *[TensorType((), torch.int64)] * bool(form.message)]
        given, (out, *_), op, inside = write_kernel(
            name, [*tensors, *more], types, self._symbols, loc=loc, ip=ip
        )
        if terms is not None:
            body, first = terms[0], len(tensors)
            shapes = [value.type.shape for value in map(in_program, body.inputs)]
            (updates,) = body.compute(inside["ip"].block, given[first:], [], shapes, loc)
            given = [given[0], updates, *given[1:first]]
        type_ = builtin_type(types[0], self._context)
        made = scatter_add(given, type_, form.dim, ignored=form.ignored, wraps=form.wraps, **inside)
        yield_values(made[: len(types)], **inside)
        if form.message:
            op.attributes[CHECKS] = write_checks({1: form.message}, self._context)
        return op, out

    def left(self, scatter: Scatter) -> list[ir.Operation]:
        """Return the ops that the scatter's kernel replaces: those that add to it, and its own zeros."""
        made = [] if scatter.starts else filled(scatter.ops[0])
        alone = itertools.takewhile(lambda op: len(list(op.results[0].uses)) == 1, made)
        return [*scatter.ops, *alone]

    def _is_kernel(self, op: ir.Operation, lone: bool) -> bool:
        form = self._form(op)
        if form is None:
            return False
        values = [form.index, form.updates, op.results[0], *([] if form.init is None else [form.init])]
        types = [type_ for v in values if (type_ := self._symbols.type(v)) is not None]
        if len(types) < len(values) or not all(t.is_static and 0 not in t.shape for t in types):
            return False
        index, updates, out, *_ = types
        if (
            index.dtype not in INDEX_DTYPES
            or out.dtype not in ELEMENTS
            or (out.dtype.itemsize < 4 and not out.dtype.is_floating_point)
        ):
            return False
        positions = index.shape if form.flat is None else (form.flat,)
        before, after = out.shape[: form.dim], out.shape[form.dim + 1 :]
        if any(t.dtype != out.dtype for t in types[1:]) or updates.shape != (*before, *positions, *after):
            return False
        if form.init is not None and types[-1].shape != out.shape:
            return False
        if form.message and not isinstance(out.shape[form.dim], int):  # the message names the size
            return False
        columns = hint(TensorType(after, out.dtype).numel)
        if out.dtype.itemsize == 2 and TensorType(before, out.dtype).numel != 1 and columns < SHORT:
            return False
        symbols = symbols_of(n for t in types for n in t.shape)
        enough = lone or hint(out.numel) + hint(updates.numel) >= ALONE_ELEMENTS
        return enough and all(self._symbols.has(symbol, types) for symbol in symbols)

    def _form(self, op: ir.Operation) -> _Form | None:
        call = self._reader.read(op)
        if any(isinstance(leaf, IntValue) for leaf in leaves(call.spec.args)):
            return None
        return _FORMS[call.spec.target](self, call)

    def _starts(self, op: ir.Operation) -> bool:
        """Return whether the sums of ``op`` start from a value other than 0."""
        form, made = self._form(op), filled(op)
        if form is None or form.init is None:
            return False
        is_full = bool(made) and target_name(made[-1]) in _FULL
        return not made or (is_full and self._reader.read(made[-1]).spec["fill_value"] != 0)

    def _behind(self, value: ir.Value) -> ir.Value:
        """Return the source of ``value`` behind transposes that cancel each other."""
        found, order = value, list(range(len(self._symbols.known_type(value).shape)))
        while (source := turned(value, self._reader)) is not None:
            value, order = source[0], [source[1][d] for d in order]
            found = value if order == sorted(order) else found
        return found

    # Forms of calls

    def _embedding(self, call: Call) -> _Form | None:
        """Return the form of an embedding's gradient; indices are unchecked, as forward has checked them."""
        updates, index = call.operands
        if call.spec["scale_grad_by_freq"]:
            return None
        padding = call.spec["padding_idx"]
        return _Form(index, updates, None, 0, padding if padding >= 0 else None)

    def _index_add(self, call: Call) -> _Form | None:
        init, index, updates = call.operands
        type_ = self._symbols.type(init)
        if type_ is None or not type_.shape or call.spec["alpha"] != 1 or len(call.spec["index"].shape) != 1:
            return None
        dim = call.spec["dim"] % len(type_.shape)
        message = self._message(init, dim) if len(type_.shape) > 1 else "index out of range in self"
        return _Form(index, updates, init, dim, message=message)

    def _index_put(self, call: Call) -> _Form | None:
        given = [dim for dim, i in enumerate(call.spec["indices"]) if isinstance(i, TensorType)]
        if len(given) != 1 or not call.spec["accumulate"]:
            return None
        (dim,), (init, index, updates) = given, call.operands
        return _Form(index, updates, init, dim, wraps=True, message=self._message(init, dim))

    def _scatter_add(self, call: Call) -> _Form | None:
        """Return the form of a sum of whole rows: the index is the same for all elements of a row."""
        init, index, updates = call.operands
        type_, seen = self._symbols.type(init), self._symbols.type(index)
        if type_ is None or seen is None or not type_.shape:
            return None
        dim, owner = call.spec["dim"] % len(type_.shape), owner_of(index)
        if owner is None or owner.name != "torch.aten.expand":
            return None
        base, count = self._reader.read(owner).operands[0], seen.shape[dim]
        spread = self._symbols.type(base)
        if spread is None or spread.numel != count or len(spread.shape) != len(seen.shape):
            return None
        if spread.shape[dim] == 1 or not isinstance(count, int):
            return None
        return _Form(base, updates, init, dim, message=self._message(init, dim), flat=count)

    def _message(self, init: ir.Value, dim: int) -> str:
        type_ = self._symbols.type(init)
        return f"index {{}} is out of bounds for dimension {dim} with size {type_ and type_.shape[dim]}"


_FORMS: dict[str, Callable[[ScatterKernels, Call], _Form | None]] = {
    "aten.embedding_dense_backward": ScatterKernels._embedding,
    "aten.index_add": ScatterKernels._index_add,
    "aten.index_put": ScatterKernels._index_put,
    "aten._unsafe_index_put": ScatterKernels._index_put,
    "aten.scatter_add": ScatterKernels._scatter_add,
}
SCATTERS = frozenset(_FORMS)
"""Targets of calls that may become kernels."""
