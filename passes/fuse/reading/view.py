"""Views as relations between the dims of a tensor and of what it is a view of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardc.cost.work import LAUNCH_BYTES
from shardc.dialects.aten.call import OpCall
from shardc.dialects.kern.size import AnySize, Size, SizeNotKnown, hint
from shardc.dialects.rules.rule import Dim as Factors
from shardc.dialects.rules.rule import find_rule
from shardc.passes.fuse.bodies.reshape import common_dims, groups
from shardc.passes.fuse.reading.space import Dim, Mismatch, Space

if TYPE_CHECKING:
    from shardc.passes.fuse.reading.graph import Value

RESHAPES = frozenset(
    f"aten.{name}"
    for name in ("_reshape_alias", "_unsafe_view", "flatten.using_ints", "reshape", "unflatten.int", "view")
)
CUTS = frozenset(("aten.slice.Tensor", "aten.select.int"))

# Views whose sharding rule says which dims are the same: no element is left out, none moves inside a dim.
WHOLE = frozenset(
    f"aten.{name}"
    for name in (
        "_reshape_alias",
        "_unsafe_view",
        "alias",
        "detach",
        "expand",
        "flatten.using_ints",
        "permute",
        "reshape",
        "squeeze",
        "squeeze.dim",
        "squeeze.dims",
        "t",
        "transpose.int",
        "unflatten.int",
        "unsqueeze",
        "view",
    )
)

SMALL_PART = 8
"""How many parts that cost no more to copy than a call does a tensor has at least, to count as a bucket."""


@dataclass(frozen=True)
class Cut:
    """A dim of the source of which ``size`` elements are kept, every ``step``-th from ``offset`` on;
    ``drop``: one, and no dim.
    """

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
    def of_ones(source: Value, shape: tuple[int, ...]) -> View:
        """A view that differs in dims of size 1 alone."""
        names = iter(range(len(shape)))
        sizes = [(f"f{next(names)}", n) for n in source.type.shape if n != 1]
        left, right = iter(sizes), iter(sizes)
        operand = tuple((next(left)[0],) if n != 1 else () for n in source.type.shape)
        result = tuple((next(right)[0],) if n != 1 else () for n in shape)
        return View(source, operand, result, tuple(sizes))

    @staticmethod
    def of_merged(source: Value, dim: int) -> View:
        """A view in which ``dim`` of the source and the one after it are one."""
        names = [f"f{d}" for d in range(len(source.type.shape))]
        result = [(name,) for name in names]
        result[dim : dim + 2] = [(names[dim], names[dim + 1])]
        return View(
            source,
            tuple((n,) for n in names),
            tuple(result),
            tuple(zip(names, source.type.shape, strict=True)),
        )

    @staticmethod
    def of_split(source: Value, dim: int, parts: int) -> View:
        """A view in which ``dim`` of the source is two: ``parts``, and the elements of one."""
        shape = split_shape(source.type.shape, dim, parts)
        names = [f"f{d}" for d in range(len(shape))]
        operand = [(name,) for name in names]
        operand[dim : dim + 2] = [(names[dim], names[dim + 1])]
        return View(source, tuple(operand), tuple((n,) for n in names), tuple(zip(names, shape, strict=True)))

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
        """How the source is read where the view is read by ``dims``. Raises Mismatch where no index map says
        it.
        """
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


def merged_shape(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """``shape`` with ``dim`` and the one after it as one."""
    return (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])


def split_shape(shape: tuple[int, ...], dim: int, parts: int) -> tuple[int, ...]:
    """``shape`` with ``dim`` taken apart into ``parts`` and the elements of one."""
    return (*shape[:dim], parts, shape[dim] // parts, *shape[dim + 1 :])


def view_of(call: OpCall, source: Value) -> View | None:
    """The relation that a call makes, None if it is none that an index map can say."""
    if any(isinstance(n, Size) for n in (*source.type.shape, *call.results[0].shape)):
        return _symbolic_view(call, source)
    if call.target in WHOLE:
        rule = find_rule(call)
        if rule is None or rule.replicate:
            return None
        return View(source, rule.operands[0], rule.results[0], tuple(rule.sizes.items()))
    if call.target == "aten.slice.Tensor":
        return _slice(call, source)
    if call.target == "aten.select.int":
        dim = call["dim"] % len(source.type.shape)
        return View(source, cut=Cut(dim, 1, call["index"] % source.type.shape[dim], 1, True))
    return None


def _symbolic_view(call: OpCall, source: Value) -> View | None:
    """Rules of reshapes ask for numbers: their factors are found here."""
    shape, made = source.type.shape, call.results[0].shape
    try:
        if call.target in RESHAPES:
            return _reshaped(source, made)
        if call.target in CUTS:
            dim, drop = call["dim"] % len(shape), call.target == "aten.select.int"
            first, step = (call["index"], 1) if drop else (call["start"] or 0, call["step"])
            first = first % shape[dim] if first < 0 else first
            return View(source, cut=Cut(dim, 1 if drop else made[dim], first, step, drop))
        rule = find_rule(call)
    except SizeNotKnown:
        return None
    if rule is None or rule.replicate:
        return None
    return View(source, rule.operands[0], rule.results[0], tuple(rule.sizes.items()))


def _reshaped(source: Value, shape: tuple[AnySize, ...]) -> View | None:
    try:
        fine = common_dims(source.type.shape, shape)
    except ValueError:
        return None
    named = [
        tuple(tuple(f"f{n}" for n in group) for group in groups(fine, s)) for s in (source.type.shape, shape)
    ]
    return View(source, *named, tuple((f"f{n}", size) for n, size in enumerate(fine)))


def _slice(call: OpCall, source: Value) -> View | None:
    shape = source.type.shape
    dim = call["dim"] % len(shape)
    start, end, step = (call[name] for name in ("start", "end", "step"))
    if any(not isinstance(x, int | None) for x in (start, end, step)):
        return None
    kept = range(shape[dim])[start:end:step]
    return View(source, cut=Cut(dim, len(kept), kept.start, kept.step, False))
