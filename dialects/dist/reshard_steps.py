"""The steps of a reshard and their effect on a layout. ``cost/collective.py`` has the bytes they send."""

from dataclasses import dataclass

from shardc.dialects.dist.axis import Axis, merge, refine
from shardc.dialects.dist.sharding import Axes, Sharding, normal_partial


@dataclass(frozen=True)
class AllReduce:
    """Combines the terms over ``axes``."""

    axes: Axes
    reduction: str

    def apply(self, sharding: Sharding) -> Sharding:
        return _without_terms(sharding, self.axes, self.reduction)


@dataclass(frozen=True)
class AllGather:
    """Makes dim ``dim`` whole over ``axes``, which are its innermost."""

    dim: int
    axes: Axes

    def apply(self, sharding: Sharding) -> Sharding:
        return _with_dim(sharding, self.dim, _without_inner(sharding.dims[self.dim], self.axes))


@dataclass(frozen=True)
class ReduceScatter:
    """Combines the terms over ``axes`` and splits dim ``dim`` over them."""

    dim: int
    axes: Axes
    reduction: str

    def apply(self, sharding: Sharding) -> Sharding:
        whole = _without_terms(sharding, self.axes, self.reduction)
        return _with_dim(whole, self.dim, sharding.dims[self.dim] + self.axes)


@dataclass(frozen=True)
class AllToAll:
    """Moves ``axes``, the innermost of dim ``concat_dim``, to the inner end of dim ``split_dim``."""

    split_dim: int
    concat_dim: int
    axes: Axes

    def apply(self, sharding: Sharding) -> Sharding:
        gathered = AllGather(self.concat_dim, self.axes).apply(sharding)
        return _with_dim(gathered, self.split_dim, sharding.dims[self.split_dim] + self.axes)


@dataclass(frozen=True)
class Permute:
    """Sends each block to the device to which ``target`` assigns it."""

    source: Sharding
    target: Sharding

    @property
    def axes(self) -> Axes:
        """The axes whose position differs between the two layouts."""
        before, after = self.source.normal(), self.target.normal()
        places = [(*s.dims, tuple(a for _, a in s.partial)) for s in (before, after)]
        moved = {a for old, new in zip(*places, strict=True) if old != new for a in (*old, *new)}
        return tuple(sorted(moved))

    def apply(self, sharding: Sharding) -> Sharding:
        if sharding.normal() != self.source.normal():
            raise ValueError(f"{self} does not apply to {sharding}")
        return self.target


@dataclass(frozen=True)
class Slice:
    """Keeps, on each device, its block of dim ``dim`` over ``axes``."""

    dim: int
    axes: Axes

    def apply(self, sharding: Sharding) -> Sharding:
        return _with_dim(sharding, self.dim, sharding.dims[self.dim] + self.axes)


@dataclass(frozen=True)
class ToPartial:
    """Makes a whole value partial over ``axes``.

    For "sum", only devices with index 0 over ``axes`` keep the value; the others hold zeros. For "max" and
    "min" all devices keep it, since the extremum of equal terms is the value.
    """

    axes: Axes
    reduction: str = "sum"

    def apply(self, sharding: Sharding) -> Sharding:
        return sharding.with_partial(sharding.partial + tuple((self.reduction, a) for a in self.axes))


Step = AllReduce | AllGather | ReduceScatter | AllToAll | Permute | Slice | ToPartial


def _with_dim(sharding: Sharding, dim: int, axes: Axes) -> Sharding:
    dims = (*sharding.dims[:dim], merge(axes), *sharding.dims[dim + 1 :])
    return Sharding(dims, sharding.partial, sharding.open)


def _without_inner(axes: Axes, inner: Axes) -> Axes:
    """Return ``axes`` without ``inner``, which must be their end. Raises ValueError."""
    fine, tail = refine(axes, set(inner)), refine(inner, set(axes))
    if fine[len(fine) - len(tail) :] != tail:
        raise ValueError(f"{_text(inner)} are not the innermost of {_text(axes)}")
    return fine[: len(fine) - len(tail)]


def _without_terms(sharding: Sharding, axes: Axes, reduction: str) -> Sharding:
    terms = tuple(a for r, a in sharding.partial if r == reduction)
    fine, gone = refine(terms, set(axes)), set(refine(axes, set(terms)))
    if not gone <= set(fine):
        raise ValueError(f"{sharding} has no {reduction} over {_text(axes)} to combine")
    others = tuple((r, a) for r, a in sharding.partial if r != reduction)
    rest = tuple((reduction, a) for a in fine if a not in gone)
    return Sharding(sharding.dims, normal_partial(others + rest), sharding.open)


def _text(axes: tuple[Axis, ...]) -> str:
    return "[" + ", ".join(map(str, axes)) + "]"
