"""Builder of the nodes of an ATen call. A call may have several nodes; a softmax has five.

The lowerings in :mod:`shardc.passes.fuse.lower.table` make all nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product

import torch

from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, Size, symbols_of
from shardc.dialects.kern.types import ELEMENTS
from shardc.passes.fuse.lower.scalars import COMBINE, Scalar, Scalars, wide
from shardc.passes.fuse.reading.graph import Access, Cut, Node, Value, View
from shardc.passes.fuse.reading.rows import is_short, rows_of
from shardc.passes.fuse.reading.space import Atoms, Dim, Mismatch, Space
from shardc.passes.fuse.reading.symbols import sized
from shardc.runtime.kernels.kernel_call import FINE


class NotLowered(Exception):
    """Reason why a call cannot become part of a kernel, in words."""


Table = tuple[Value, Sequence[int | None]]
"""Tensor that is read at computed indices, and for each of its dims the result's dim; None if indexed."""


@dataclass
class Builder:
    """Builder of the ``nodes`` of one call, in order. While ``loose``, new nodes are loose.

    ``unrolls``: whether short rows of the call are reduced by one op each. ``steady``: whether each kernel
    must compute the call's results with the same bits.
    """

    call: int
    loose: bool = False
    unrolls: bool = False
    steady: bool = False
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
        reads: int = 1,
    ) -> Value:
        """Add a pointwise op on ``inputs``, broadcast to ``type_``, in ``dtype`` (default: ATen's).

        ``compute`` takes the operands, then a function for each of ``tables`` that returns the element at i64
        indices in bounds, then the row-major index (i64) over each group of dims of ``indices``. ``reads``:
        number of elements of each table that an element of the result reads.
        """
        if type_.dtype not in ELEMENTS:
            raise NotLowered(f"makes {type_.dtype}")
        space = Space()
        dims = tuple(space.new(n) for n in type_.shape)
        accesses = []
        for value in inputs:
            start = len(dims) - len(value.type.shape)
            if any(n not in (1, type_.shape[start + d]) for d, n in enumerate(value.type.shape)):
                raise NotLowered("broadcasts sizes that may differ")
            read = [() if n == 1 else dims[start + d] for d, n in enumerate(value.type.shape)]
            accesses.append(access(space, value, read))
        for value, dims_of in tables:
            read = [() if d is None else dims[d] for d in dims_of]
            gathered = [at for at, d in enumerate(dims_of) if d is None]
            accesses.append(access(space, value, read, gathered))
        computes = dtype or wide(type_.dtype)
        groups = tuple(tuple(a for d in group for a in dims[d]) for group in indices)
        made = Node(self.call, accesses, Value(type_), dims, computes, space, compute, sizes=tuple(sizes))
        made.heavy, made.indices, made.reads = heavy, groups, reads
        return self._add(made)

    def reduce(self, kind: str, x: Value, dims: Sequence[int], dtype: torch.dtype | None = None) -> Value:
        """Add the ``sum``, ``product``, ``max`` or ``min`` of ``x`` over ``dims``, which are kept with size
        1.

        16-bit floats are reduced in f32. If all ``dims`` have one element, the node is pointwise.
        """
        dtype = dtype or wide(x.type.dtype)
        if all(x.type.shape[d] == 1 for d in dims):
            zero = kind == "sum"  # a sum of -0 is 0
            type_ = TensorType(x.type.shape, dtype)
            return self.point(lambda s, e: s.add(e, 0) if zero else e, [x], type_, dtype=dtype)
        if self.unrolls and is_short(x, dims):
            return self._unrolled(kind, x, dims, dtype)
        space = Space()
        read = [space.new(n) for n in x.type.shape]
        reduced = tuple(a for d in dims for a in read[d])
        kept = tuple(() if d in dims else atoms for d, atoms in enumerate(read))
        out = Value(TensorType(tuple(1 if d in dims else n for d, n in enumerate(x.type.shape)), dtype))
        accesses = [access(space, x, read)]
        return self._add(Node(self.call, accesses, out, kept, dtype, space, None, kind, reduced))

    def reduce_all(self, kind: str, x: Value, dtype: torch.dtype | None = None) -> Value:
        """Add the reduction of ``x`` over all dims, which are kept with size 1.

        A reduction of more than MAX_SERIAL elements becomes one of rows, and one of their results. A kernel
        reduces its rows on all threads, in an order that depends only on the number of rows.
        """
        rows = rows_of(x.type.shape)
        if rows is None:
            return self.reduce(kind, x, range(len(x.type.shape)), dtype)
        return self.reduce(kind, self.reduce(kind, self.seen(x, rows), [1], dtype), [0], dtype)

    def _unrolled(self, kind: str, x: Value, dims: Sequence[int], dtype: torch.dtype) -> Value:
        """Add the reduction of ``x`` over ``dims`` as a pointwise op that reads each reduced element."""
        kept = [None if d in dims else d for d in range(len(x.type.shape))]
        type_ = TensorType(tuple(1 if d in dims else n for d, n in enumerate(x.type.shape)), dtype)
        places = list(product(*(range(x.type.shape[d]) for d in sorted(dims))))

        def compute(s: Scalars, read: Callable[..., Scalar]) -> Scalar:
            terms = (s.cast(read(*(s.constant(n, torch.int64) for n in at)), dtype) for at in places)
            made = functools.reduce(partial(COMBINE[kind], s), terms)
            return s.add(made, 0) if kind == "sum" else made  # a sum of -0 is 0

        return self.point(compute, [], type_, dtype=dtype, tables=[(x, kept)], reads=len(places))

    def check(
        self, x: Value, wrong: Callable[[Scalars, Scalar], Scalar], message: str, sizes: Sequence[AnySize]
    ) -> None:
        """Make the call raise an IndexError if ``wrong(scalars, element)`` holds for an integer in ``x``.

        The largest such integer replaces ``{}`` in ``message``. The nodes are loose: they may reduce other
        dims than the kernel that reads at these indices.
        """
        loose, self.loose = self.loose, True
        type_ = TensorType(x.type.shape, torch.int64)

        def compute(s: Scalars, v: Scalar) -> Scalar:
            return s.select(wrong(s, v), s.cast(v, torch.int64), FINE)

        found = self.point(compute, [x], type_, sizes=sizes)
        found = self.reduce_all("max", found) if x.type.shape else found
        assert found.node is not None
        found.node.check, self.loose = message, loose

    def sliced(self, x: Value, cut: Cut, type_: TensorType) -> Value | None:
        """Return the part ``cut`` of ``x``, of ``type_``, computed by the op that makes ``x``.

        None if the op is not a cheap pointwise one without computed indices.
        """
        node = x.node
        if node is None or node.out is not x or node.compute is None or node.heavy or node.indices:
            return None
        old, space = node.space, Space()
        atoms = old.resolve(node.out_dims[cut.dim])
        if len(atoms) != 1 or any(read.gathers for read in node.accesses):
            return None
        (atom,) = atoms
        names = {atom: () if cut.drop else space.new(type_.shape[cut.dim])}
        for a in (a for access in node.accesses for dim in access.dims for a in old.resolve(dim.atoms)):
            names.setdefault(a, space.new(old.sizes[a]))

        def renamed(atoms: Atoms) -> Atoms:
            found = (names.setdefault(a, space.new(old.sizes[a])) for a in old.resolve(atoms))
            return tuple(chain.from_iterable(found))

        def cut_out(dim: Dim) -> Dim:
            if atom not in old.resolve(dim.atoms):
                return replace(dim, atoms=renamed(dim.atoms))
            offset, step = dim.offset + dim.step * cut.offset, dim.step * cut.step
            return Dim(names[atom], dim.size, offset, step, True)

        every = [old.resolve(dim.atoms) for read in node.accesses for dim in read.dims]
        if any(atom in found and len(found) > 1 for found in every):
            return None
        accesses = [Access(read.base, tuple(map(cut_out, read.dims))) for read in node.accesses]
        out_dims = [renamed(atoms) for atoms in node.out_dims]
        if cut.drop:
            del out_dims[cut.dim]
        made = Node(self.call, accesses, Value(type_), tuple(out_dims), node.dtype, space, node.compute)
        made.sizes, made.what, made.steady = node.sizes, node.what, node.steady
        return self._add(made)

    def seen(self, x: Value, shape: tuple[AnySize, ...]) -> Value:
        """Return ``x`` in another shape, for a node of the same call to read."""
        return x if shape == x.type.shape else _viewed(x, shape)

    def reshape(self, x: Value, shape: tuple[AnySize, ...]) -> Value:
        """Return ``x`` in another shape, as a result of the call instead of ``x``."""
        assert x.node is not None
        made = _viewed(x, shape)
        x.node.others.append(made)
        return made

    def contract(self, x: Value, y: Value, dtype: torch.dtype) -> Value:
        """Return the product [*batch, m, n] of ``x`` [*batch, m, k] and ``y`` [*batch, k, n] in ``dtype``."""
        if symbols_of((*x.type.shape, *y.type.shape)):
            raise NotLowered("multiplies matrices of symbolic sizes")
        space = Space()
        *batch, m, k = (space.new(size) for size in x.type.shape)
        n = space.new(y.type.shape[-1])
        accesses = [access(space, x, [*batch, m, k]), access(space, y, [*batch, k, n])]
        out = Value(TensorType((*x.type.shape[:-1], y.type.shape[-1]), dtype))
        return self._add(Node(self.call, accesses, out, (*batch, m, n), dtype, space, None, "sum", k))

    def _add(self, node: Node) -> Value:
        node.out.node = node
        node.order, node.loose = (self.call, len(self.nodes)), self.loose
        node.steady |= self.steady
        sizes = [*node.out.type.shape, *node.sizes, *node.space.sizes.values()]
        sizes += [n for access in node.accesses for n in access.base.type.shape]
        node.is_symbolic = any(isinstance(n, Size) for n in sizes)
        node.gathers = any(access.gathers for access in node.accesses)
        self.nodes.append(node)
        return node.out


def _viewed(x: Value, shape: tuple[AnySize, ...]) -> Value:
    return Value(sized(shape, x.type.dtype), None, View.reshaped(x, shape), x.node)


def access(space: Space, value: Value, read: Sequence[Atoms], gathered: Sequence[int] = ()) -> Access:
    """Return the access to the tensor of which ``value`` is a view, as far as an index map can express it.

    ``read``: atoms by which each dim of ``value`` is read. ``gathered``: dims that are read at computed
    indices. Raises NotLowered for a dtype that kernels do not support.
    """
    if value.type.dtype not in ELEMENTS:
        raise NotLowered(f"reads {value.type.dtype}")
    sizes = enumerate(zip(read, value.type.shape, strict=True))
    numbers = {d: number for number, d in enumerate(gathered)}
    dims = tuple(
        Dim(atoms, size, gathered=d in numbers, number=numbers.get(d, 0)) for d, (atoms, size) in sizes
    )
    while value.view is not None and not (value.ir is not None and value.view.is_apart):
        trial = space.joined(Space())
        try:
            seen = value.view.through(trial, dims)
        except Mismatch:
            break
        if sum(part.gathered for dim in seen for part in (dim.parts or (dim,))) != len(gathered):
            break
        dims = seen
        space.sizes, space._became = trial.sizes, trial._became
        value = value.view.source
    return Access(value, tuple(part for dim in dims for part in (dim.parts or (dim,))))
