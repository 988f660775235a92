"""What fusion works on: the ops of a block as pointwise and reduction nodes, views as relations between dims.

One ATen call may be several nodes (a softmax is five); all of them are made here by the lowerings in
:mod:`shardc.passes.fuse.lower.table`. Calls without a lowering are opaque: they only read and make values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, Size, symbols_of
from shardc.dialects.kern.types import ELEMENTS
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.reading.space import Atoms, Dim, Mismatch, Space
from shardc.passes.fuse.reading.view import Cut, View, merged_shape, split_shape
from shardc.runtime.kernels.kernel_call import FINE

_orders = itertools.count()


class NotLowered(Exception):
    """Why a call cannot become part of a kernel, in words."""


@dataclass(eq=False, slots=True)
class Value:
    """A tensor. ``ir`` is the SSA value if the program has it; ``view`` says how it reads another one.

    ``node`` is what computes it in a kernel: its own node, or that of what it is a view of.
    """

    type: TensorType
    ir: ir.Value | None = None
    view: View | None = None
    node: Node | None = None


@dataclass(frozen=True)
class Access:
    """How a node reads a tensor: ``dims`` has an entry for each of the tensor's dims, or of a finer shape of
    it.
    """

    base: Value
    dims: tuple[Dim, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape in which the tensor is read."""
        return tuple(dim.size for dim in self.dims)

    @cached_property
    def gathers(self) -> bool:
        """Whether the place that is read depends on values."""
        return any(dim.gathered for dim in self.dims)


Table = tuple[Value, Sequence[int | None]]
"""A tensor that is read at an index which is computed: for each of its dims the dim of the result, None for
the one (no other) that the index is in.
"""


@dataclass(eq=False, slots=True)
class Node:
    """One pointwise op (``compute(scalars, *operands)``), or a reduction (``reduce``): of its one operand, or
    of the product of its two (a contraction).

    ``out_dims`` are the atoms of its result; ``reduced`` those that a reduction takes away. ``dtype`` is what
    it computes in. ``indices``: groups of dims of the result; ``compute`` takes the row-major index over
    each, i64, after the operands. ``heavy``: not worth computing twice. ``call`` numbers the ATen call that
    it belongs to, ``order`` says where the node stands among all nodes. ``sizes`` are those whose numbers
    ``compute`` asks for (:meth:`Scalars.size`). ``is_symbolic``: one of the sizes of its loops or tensors is
    no number. ``gathers``: it reads at computed indices. ``check``: its result, an integer, is FINE, or the
    kernel's call raises an error of this text, with the integer for ``{}``. ``loose``: the other nodes of its
    call are as good in another kernel.
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
    order: int = 0
    what: Hashable = None
    """What it computes: nodes of which it is equal have equal ``compute``, ``reduce``, ``dtype``,
    ``heavy`` and ``sizes``."""
    check: str = ""
    loose: bool = False
    others: list[Value] = field(default_factory=list)
    """Views of its result that its call returns in its place."""

    @property
    def contracts(self) -> bool:
        """Whether it is a contraction: a matmul."""
        return bool(self.reduce) and len(self.accesses) == 2


@dataclass
class Builder:
    """Makes the nodes of one call; ``nodes`` holds them in order. While it is ``loose``, those that it makes
    are.
    """

    call: int
    loose: bool = False
    nodes: list[Node] = field(default_factory=list)

    def point(
        self,
        compute: Callable[..., Scalar],
        inputs: Sequence[Value],
        type_: TensorType,
        *,
        dtype: torch.dtype | None = None,
        heavy: bool = False,
        indices: Sequence[Sequence[int]] = (),
        sizes: Sequence[AnySize] = (),
        tables: Sequence[Table] = (),
    ) -> Value:
        """A pointwise op on ``inputs``, which broadcast to ``type_``. It computes in ``dtype`` (default: as
        ATen would).

        After the operands ``compute`` takes a function for each of ``tables``, which gives the element at an
        index, i64, that is in bounds, and then the row-major index (i64) over each group of dims of
        ``indices``.
        """
        if type_.dtype not in ELEMENTS:
            raise NotLowered(f"makes {type_.dtype}")
        space = Space()
        dims = tuple(space.new(n) for n in type_.shape)
        accesses = []
        for value in inputs:
            start = len(dims) - len(value.type.shape)
            if any(n not in (1, type_.shape[start + d]) for d, n in enumerate(value.type.shape)):
                raise NotLowered("broadcasts sizes of which is not known that they are equal")
            read = [() if n == 1 else dims[start + d] for d, n in enumerate(value.type.shape)]
            accesses.append(access(space, value, read))
        for value, dims_of in tables:
            read = [() if d is None else dims[d] for d in dims_of]
            accesses.append(access(space, value, read, gathered=list(dims_of).index(None)))
        computes = dtype or wide(type_.dtype)
        groups = tuple(tuple(a for d in group for a in dims[d]) for group in indices)
        made = Node(
            self.call, accesses, Value(type_), dims, computes, space, compute, heavy=heavy, indices=groups
        )
        made.sizes = tuple(sizes)
        return self._add(made)

    def reduce(self, kind: str, x: Value, dims: Sequence[int], dtype: torch.dtype | None = None) -> Value:
        """The ``sum``, ``max`` or ``min`` of ``x`` over ``dims``, which stay with size 1; in f32 for the
        16-bit floats.

        Over dims of one element each it is pointwise.
        """
        dtype = dtype or wide(x.type.dtype)
        if all(x.type.shape[d] == 1 for d in dims):
            zero = kind == "sum"  # -0 sums up to 0
            return self.point(
                lambda s, e: s.add(e, 0) if zero else e, [x], TensorType(x.type.shape, dtype), dtype=dtype
            )
        space = Space()
        read = [space.new(n) for n in x.type.shape]
        reduced = tuple(a for d in dims for a in read[d])
        kept = tuple(() if d in dims else atoms for d, atoms in enumerate(read))
        shape = tuple(1 if d in dims else n for d, n in enumerate(x.type.shape))
        accesses = [access(space, x, read)]
        return self._add(
            Node(
                self.call, accesses, Value(TensorType(shape, dtype)), kept, dtype, space, None, kind, reduced
            )
        )

    def check(
        self,
        x: Value,
        wrong: Callable[[Scalars, Scalar], Scalar],
        message: str,
        sizes: Sequence[AnySize] = (),
    ) -> None:
        """Where ``wrong(scalars, element)`` holds for an element of ``x``, integers, the call raises an
        IndexError with ``message``, in which the largest such element stands for ``{}``. Its nodes are loose:
        they may reduce other dims than the kernel that reads at these indices.
        """
        loose, self.loose = self.loose, True
        type_ = TensorType(x.type.shape, torch.int64)
        found = self.point(
            lambda s, v: s.select(wrong(s, v), s.cast(v, torch.int64), FINE), [x], type_, sizes=sizes
        )
        found = self.reduce("max", found, range(len(x.type.shape))) if x.type.shape else found
        assert found.node is not None
        found.node.check, self.loose = message, loose

    def sliced(self, x: Value, cut: Cut, type_: TensorType) -> Value | None:
        """``x``'s op on the part that ``cut`` leaves, of ``type_``;
        None unless it is pointwise and reads that part of a dim alone.
        """
        node = x.node
        if node is None or node.out is not x or node.compute is None or node.heavy or node.indices:
            return None
        if any(read.gathers for read in node.accesses):
            return None
        old, space = node.space, Space()
        names: dict[int, Atoms] = {}
        (atom, *more) = old.resolve(node.out_dims[cut.dim]) or (None,)
        if atom is None or more:
            return None
        names[atom] = () if cut.drop else space.new(type_.shape[cut.dim])
        for a in (a for access in node.accesses for dim in access.dims for a in old.resolve(dim.atoms)):
            names.setdefault(a, space.new(old.sizes[a]))

        def renamed(atoms: Atoms) -> Atoms:
            return tuple(
                new for a in old.resolve(atoms) for new in names.setdefault(a, space.new(old.sizes[a]))
            )

        accesses = []
        for read in node.accesses:
            dims = []
            for dim in read.dims:
                if atom not in old.resolve(dim.atoms):
                    dims.append(replace(dim, atoms=renamed(dim.atoms)))
                elif len(old.resolve(dim.atoms)) == 1:
                    offset, step = dim.offset + dim.step * cut.offset, dim.step * cut.step
                    dims.append(Dim(names[atom], dim.size, offset, step, True))
                else:
                    return None
            accesses.append(Access(read.base, tuple(dims)))
        out_dims = [renamed(atoms) for atoms in node.out_dims]
        if cut.drop:
            del out_dims[cut.dim]
        made = Node(self.call, accesses, Value(type_), tuple(out_dims), node.dtype, space, node.compute)
        made.sizes, made.what = node.sizes, node.what
        return self._add(made)

    def seen(self, x: Value, shape: tuple[int, ...]) -> Value:
        """``x`` without, or with, dims of size 1, to be read by a node of the same call."""
        return (
            x
            if shape == x.type.shape
            else Value(x.type.with_shape(shape), None, View.of_ones(x, shape), x.node)
        )

    def split(self, x: Value, dim: int, parts: int) -> Value:
        """``x`` with ``dim`` taken apart into ``parts`` of equal size, to be read by a node of
        the same call.
        """
        return Value(
            x.type.with_shape(split_shape(x.type.shape, dim, parts)),
            None,
            View.of_split(x, dim, parts),
            x.node,
        )

    def merged(self, x: Value, dim: int) -> Value:
        """``x`` with ``dim`` and the one after it as one."""
        assert x.node is not None
        made = Value(x.type.with_shape(merged_shape(x.type.shape, dim)), None, View.of_merged(x, dim), x.node)
        x.node.others.append(made)
        return made

    def contract(self, x: Value, y: Value, dtype: torch.dtype) -> Value:
        """The matrix product of ``x`` [*batch, m, k] and ``y`` [*batch, k, n]: [*batch, m, n], in
        ``dtype``.
        """
        if symbols_of((*x.type.shape, *y.type.shape)):
            raise NotLowered("multiplies matrices of symbolic sizes")
        space = Space()
        *batch, m, k = (space.new(size) for size in x.type.shape)
        n = space.new(y.type.shape[-1])
        accesses = [access(space, x, [*batch, m, k]), access(space, y, [*batch, k, n])]
        type_ = TensorType((*x.type.shape[:-1], y.type.shape[-1]), dtype)
        return self._add(
            Node(self.call, accesses, Value(type_), (*batch, m, n), dtype, space, None, "sum", k)
        )

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """``x`` without, or with, dims of size 1."""
        assert x.node is not None
        made = Value(x.type.with_shape(shape), None, View.of_ones(x, shape), x.node)
        x.node.others.append(made)
        return made

    def _add(self, node: Node) -> Value:
        node.out.node = node
        node.order, node.loose = next(_orders), self.loose
        shapes = [
            node.out.type.shape,
            node.sizes,
            node.space.sizes.values(),
            *(a.base.type.shape for a in node.accesses),
        ]
        node.is_symbolic = any(isinstance(n, Size) for shape in shapes for n in shape)
        node.gathers = any(access.gathers for access in node.accesses)
        self.nodes.append(node)
        return node.out


def access(space: Space, value: Value, read: Sequence[Atoms], gathered: int | None = None) -> Access:
    """The access behind views: of the tensor, or part of one, that ``value`` is a view of, if an index map
    can say it.

    Dim ``gathered`` is read at an index that is computed.
    Raises NotLowered for a dtype that kernels do not take.
    """
    if value.type.dtype not in ELEMENTS:
        raise NotLowered(f"reads {value.type.dtype}")
    sizes = enumerate(zip(read, value.type.shape, strict=True))
    dims = tuple(Dim(atoms, size, gathered=d == gathered) for d, (atoms, size) in sizes)
    while value.view is not None and not (value.ir is not None and value.view.is_apart):
        trial = space.joined(Space())
        try:
            seen = value.view.through(trial, dims)
        except Mismatch:
            break
        if gathered is not None and (
            any(dim.sliced or dim.parts for dim in seen) or not any(dim.gathered for dim in seen)
        ):
            break
        dims = seen
        space.sizes, space._became = trial.sizes, trial._became
        value = value.view.source
    return Access(value, tuple(part for dim in dims for part in (dim.parts or (dim,))))
