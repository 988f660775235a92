"""What fusion works on: the ops of a block as pointwise and reduction nodes, views as relations between dims.

Calls without a lowering are opaque: they only read and make values.
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

SMALL_PART = 8
"""How many parts that cost no more to copy than a call does a tensor has at least, to count as a bucket."""

Shape = tuple[AnySize, ...]


@dataclass(eq=False, slots=True)
class Value:
    """A tensor. ``ir``: its SSA value, if any. ``view``: how it reads another. ``node``: what computes it."""

    type: TensorType
    ir: ir.Value | None = None
    view: View | None = None
    node: Node | None = None


@dataclass(frozen=True)
class Cut:
    """Of a dim ``size`` elements, each ``step``-th, from ``offset`` on. ``drop``: one, and the dim goes."""

    dim: int
    size: AnySize
    offset: int
    step: int
    drop: bool


@dataclass(frozen=True)
class View:
    """``source`` seen otherwise: dims by factors as in a sharding rule, or a ``cut`` of one dim."""

    source: Value
    operand: tuple[Factors, ...] = ()
    result: tuple[Factors, ...] = ()
    sizes: tuple[tuple[str, AnySize], ...] = ()
    cut: Cut | None = None

    @staticmethod
    def reshaped(source: Value, shape: Shape) -> View:
        """The elements of ``source`` in the same order. Raises as :func:`common_dims`."""
        fine, shapes = common_dims(source.type.shape, shape), (source.type.shape, shape)
        operand, result = (tuple(tuple(f"f{n}" for n in dims) for dims in groups(fine, s)) for s in shapes)
        return View(source, operand, result, tuple((f"f{n}", size) for n, size in enumerate(fine)))

    @property
    def is_apart(self) -> bool:
        """Whether kernels read it as a tensor of its own, not as a part of its source.

        So they do with what lies in one piece, or is a small part (``LAUNCH_BYTES``) of a bucket: the same op
        on another part is the same kernel then, compiled once.
        """
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
        """How the source is read where the view is read by ``dims``. Raises Mismatch if no map says it."""
        if self.cut is not None:
            return self._through_cut(dims)
        sizes = dict(self.sizes)
        factors = {name: Dim(space.new(size), size) for name, size in self.sizes}
        for dim, names in zip(dims, self.result, strict=True):
            if dim.plain and dim.atoms:  # a broadcast dim is read whole or not at all
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

    def _through_cut(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
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
    """How a node reads a tensor: by the ``dims`` of that tensor, or of a finer shape of it."""

    base: Value
    dims: tuple[Dim, ...]

    @cached_property
    def gathers(self) -> bool:
        """Whether the place that is read depends on values."""
        return any(dim.gathered for dim in self.dims)


@dataclass(eq=False, slots=True)
class Node:
    """One pointwise op (``compute(scalars, *operands)``), or a reduction (``reduce``): of its one operand, or
    of the product of its two (a contraction).

    ``out_dims`` are the atoms of its result; ``reduced`` those that a reduction takes away. ``dtype`` is what
    it computes in. ``indices``: groups of dims of the result; ``compute`` takes the row-major index over
    each, i64, after the operands. ``heavy``: not worth computing twice. ``call`` numbers the ATen call that
    it belongs to, ``order`` says where the node stands among all nodes: its call, and its place in that.
    ``sizes`` are those whose numbers ``compute`` asks for (:meth:`Scalars.size`). ``is_symbolic``: one of the
    sizes of its loops or tensors is no number. ``gathers``: it reads at computed indices. ``check``: its
    result, an integer, is FINE, or the kernel's call raises an error of this text, with the integer for
    ``{}``. ``loose``: the other nodes of its call are as good in another kernel.
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
    order: tuple[int, int] = (0, 0)
    what: Hashable = None
    """Its computation: where equal, so are ``compute``, ``reduce``, ``dtype``, ``heavy`` and ``sizes``."""
    check: str = ""
    loose: bool = False
    others: list[Value] = field(default_factory=list)
    """Views of its result that its call returns in its place."""

    @property
    def contracts(self) -> bool:
        """Whether it is a contraction: a matmul."""
        return bool(self.reduce) and len(self.accesses) == 2


@dataclass(eq=False, slots=True)
class Step:
    """One op of a block. ``operands`` are the tensors that it reads, ``nodes`` what it lowers to (none: it
    stays).

    ``is_view``: its result is another tensor's memory seen otherwise, so that it need not stand anywhere in
    particular. ``always``: it becomes a kernel even if it shares none with another. ``why`` says why it does
    not lower.
    """

    number: int
    op: ir.Operation
    target: str
    operands: list[Value]
    results: list[Value | None]
    nodes: list[Node] = field(default_factory=list)
    is_view: bool = False
    always: bool = False
    why: str = ""


@dataclass
class Block:
    """The steps of a block, its values by SSA value, and those that leave it."""

    block: ir.Block
    steps: list[Step]
    values: dict[ir.Value, Value]
    returned: list[Value]
    symbols: Symbols
