"""Graph that fusion works on: ops are pointwise and reduction nodes, views are relations between dims.

Calls without a lowering are opaque: only the values that they read and make are known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch_mlir import ir

from shardc.cost.work import LAUNCH_BYTES
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, hint
from shardc.dialects.rules.rule import Dim as Factors
from shardc.passes.fuse.bodies.reshape import common_dims, groups
from shardc.passes.fuse.lower.scalars import Scalar
from shardc.passes.fuse.reading.space import Atoms, Dim, Mismatch, Space
from shardc.passes.fuse.reading.symbols import Symbols

SMALL_PART = 32
"""Least number of small parts, which are as cheap to copy as a call, in a tensor that counts as a bucket."""

Shape = tuple[AnySize, ...]


@dataclass(eq=False, slots=True)
class Value:
    """Tensor. ``ir``: its SSA value, if any. ``view``: relation to another tensor. ``node``: its producer."""

    type: TensorType
    ir: ir.Value | None = None
    view: View | None = None
    node: Node | None = None


@dataclass(frozen=True)
class Cut:
    """Slice of a dim: ``size`` elements from ``offset``, with ``step``.

    ``drop``: True for a selection of one element, which removes the dim.
    """

    dim: int
    size: AnySize
    offset: int
    step: int
    drop: bool


@dataclass(frozen=True)
class View:
    """View of ``source``: a relation of dims by factors, as in a sharding rule, or a ``cut`` of one dim.

    ``dense``: True if the view is contiguous, in the order of the source's memory.
    """

    source: Value
    operand: tuple[Factors, ...] = ()
    result: tuple[Factors, ...] = ()
    sizes: tuple[tuple[str, AnySize], ...] = ()
    cut: Cut | None = None
    dense: bool = False

    @staticmethod
    def reshaped(source: Value, shape: Shape) -> View:
        """Return a reshape of ``source``. Raises as :func:`common_dims`."""
        fine, shapes = common_dims(source.type.shape, shape), (source.type.shape, shape)
        operand, result = (tuple(tuple(f"f{n}" for n in dims) for dims in groups(fine, s)) for s in shapes)
        return View(source, operand, result, tuple((f"f{n}", size) for n, size in enumerate(fine)))

    @property
    def is_apart(self) -> bool:
        """True if kernels read the view as a separate tensor, not as a part of its source.

        It is True for a contiguous view, also of a tensor in another order of dims, and for a small part
        (``LAUNCH_BYTES``) of a bucket. The same op on other parts is then the same kernel, which is compiled
        once.
        """
        if self.dense:
            return True
        if self.cut is None:
            return self._keeps_order and self.source.view is not None and self.source.view.is_apart
        whole = self.source.type
        whole_bytes, extent = hint(whole.size_bytes), max(1, hint(whole.shape[self.cut.dim]))
        size_bytes = whole_bytes // extent * hint(self.cut.size)
        return self._is_block or (size_bytes <= LAUNCH_BYTES and SMALL_PART * size_bytes <= whole_bytes)

    @property
    def _is_block(self) -> bool:
        cut, shape = self.cut, self.source.type.shape
        if cut is None or cut.step != 1 or any(n != 1 for n in shape[: cut.dim]):
            return False
        source = self.source.view
        while source is not None and source._keeps_order:
            source = source.source.view
        return source is None or source._is_block

    @property
    def _keeps_order(self) -> bool:
        factors = (tuple(name for names in dims for name in names) for dims in (self.operand, self.result))
        return self.cut is None and next(factors) == next(factors)

    def through(self, space: Space, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the dims by which the source is read if the view is read by ``dims``. Raises Mismatch."""
        if self.cut is not None:
            return self.cut_dims(dims)
        sizes = dict(self.sizes)
        factors = {name: Dim(space.new(size), size) for name, size in self.sizes}
        for dim, names in zip(dims, self.result, strict=True):
            if dim.plain and dim.atoms:  # a broadcast dim has no atoms
                space.unify(tuple(a for name in names for a in factors[name].atoms), dim.atoms)
            elif not dim.plain:
                names = [name for name in names if sizes[name] != 1]
                if len(names) != 1:
                    raise Mismatch
                factors[names[0]] = dim
        return tuple(
            Dim.of_parts([factors[name] for name in names], size) if names else Dim((), size)
            for names, size in zip(self.operand, self.source.type.shape, strict=True)
        )

    def cut_dims(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the dims by which the source of a slice is read if the slice is read by ``dims``.

        Raises Mismatch.
        """
        assert self.cut is not None
        cut, shape = self.cut, self.source.type.shape
        rest = list(dims)
        seen = Dim((), 1) if cut.drop else rest.pop(cut.dim)
        if seen.parts:
            raise Mismatch
        size = shape[cut.dim]
        offset, sliced = cut.offset + cut.step * seen.offset, seen.sliced or seen.size != size
        read = replace(seen, size=size, offset=offset, step=cut.step * seen.step, sliced=sliced)
        return (*rest[: cut.dim], read, *rest[cut.dim :])


@dataclass(frozen=True)
class Access:
    """Access of a tensor by a node. ``dims``: accesses to the tensor's dims, or to dims of a finer shape."""

    base: Value
    dims: tuple[Dim, ...]

    @cached_property
    def gathers(self) -> bool:
        """True if the access reads at computed indices."""
        return any(dim.gathered for dim in self.dims)

    @cached_property
    def jumps(self) -> bool:
        """True if the access reads at computed indices, or a slice.

        If the kernel makes the tensor, it computes its elements where the access reads them.
        """
        return self.gathers or any(dim.sliced for dim in self.dims)


@dataclass(eq=False, slots=True)
class Node:
    """Pointwise op (``compute(scalars, *operands)``), or reduction (``reduce``).

    A reduction reduces its only operand, or the product of its two operands (a contraction).

    ``call``: number of its ATen call. ``order``: its position: the call, and the position in the call.
    ``out_dims``: atoms of its result. ``reduced``: atoms that a reduction removes. ``dtype``: dtype of the
    computation. ``indices``: groups of dims of the result; ``compute`` takes the row-major index (i64) over
    each group after the operands. ``sizes``: sizes that ``compute`` reads (:meth:`Scalars.size`).

    ``steady``: True if all kernels must compute the same bits (:mod:`shardc.passes.fuse.reading.compared`).
    ``heavy``: True if the op is too expensive to compute twice. ``is_symbolic``: True if a size of its loops
    or tensors is symbolic. ``gathers``: True if it reads at computed indices. ``loose``: True if it may be in
    another kernel than the other nodes of its call. ``check``: text of an error, or empty. With a text, the
    result is an integer, and the kernel's call raises the error unless the integer is FINE. The integer
    replaces ``{}`` in the text. ``reads``: number of elements that it reads of each tensor with computed
    indices.
    """

    call: int
    accesses: list[Access]
    out: Value
    out_dims: tuple[Atoms, ...]
    dtype: torch.dtype
    space: Space
    compute: Callable[..., Scalar] | None = None
    reduce: str = ""
    reduced: Atoms = ()
    indices: tuple[Atoms, ...] = ()
    heavy: bool = False
    sizes: tuple[AnySize, ...] = ()
    is_symbolic: bool = False
    gathers: bool = False
    reads: int = 1
    order: tuple[int, int] = (0, 0)
    what: Hashable = None
    """Key of its computation: equal keys mean equal ``compute``, ``reduce``, ``dtype``, ``heavy`` and
    ``sizes``.
    """
    check: str = ""
    loose: bool = False
    steady: bool = False
    others: list[Value] = field(default_factory=list)
    """Views of its result that its call returns instead."""

    @property
    def contracts(self) -> bool:
        """True if the node is a contraction, that is, a matmul."""
        return bool(self.reduce) and len(self.accesses) == 2


@dataclass(eq=False, slots=True)
class Step:
    """Op of a block. ``operands``: tensors that it reads. ``nodes``: its lowering; empty if it stays a call.

    ``is_view``: True if its result is a view, so that its position does not matter. ``always``: True if it
    becomes a kernel even without another op. ``is_unread``: True if its result is read only by steps that
    compute their part of it. ``why``: reason why it has no lowering.
    """

    number: int
    op: ir.Operation
    target: str
    operands: list[Value]
    results: list[Value | None]
    nodes: list[Node] = field(default_factory=list)
    is_view: bool = False
    always: bool = False
    is_unread: bool = False
    why: str = ""


@dataclass
class Block:
    """Block as fusion sees it: its steps, its values by SSA value, and the returned values."""

    block: ir.Block
    steps: list[Step]
    values: dict[ir.Value, Value]
    returned: list[Value]
    symbols: Symbols
