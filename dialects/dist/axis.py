"""``#dist.axis``: a mesh axis, or a contiguous part of one (a sub-axis)."""

from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.dist.dialect import Dist


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """``size`` ways of mesh axis ``name``, after ``pre`` ways of it that are more major.

    The whole of an axis of size 4 is ``Axis("tensor", 1, 4)``; its major half ``Axis("tensor", 1, 2)``, its
    minor half ``Axis("tensor", 2, 2)``. As in Shardy, a device's coordinate on the part is
    ``coordinate // (total / (pre * size)) % size``.
    """

    name: str
    pre: int
    size: int

    def overlaps(self, other: "Axis") -> bool:
        """Whether they can't stand in one sharding: with ways in common, or no whole part between them.

        Of 6 ways the major 2 and the minor 2 overlap: between them there would be a part of 1.5. Unequal
        shares of an axis and equal blocks along it are of the same devices, and overlap.
        """
        if self.size == 1 or other.size == 1:
            return False
        if self.name != other.name:
            return shared_axis(self.name) == shared_axis(other.name)
        low, high = sorted((self, other), key=lambda axis: axis.pre)
        return high.pre % (low.pre * low.size) != 0

    def split(self, major: int) -> "tuple[Axis, Axis]":
        """The first ``major`` ways and the rest of this part."""
        return Axis(self.name, self.pre, major), Axis(self.name, self.pre * major, self.size // major)

    def __str__(self) -> str:
        return f"{self.name}:({self.pre}){self.size}"


_SHARE = "/share"


def share_name(axis: str) -> str:
    """The time axis whose iterations the ranks along the space axis ``axis`` share out."""
    return axis + _SHARE


def shared_axis(name: str) -> str:
    """The space axis of a :func:`share_name`; ``name`` itself if it is none."""
    return name.removesuffix(_SHARE)


def merge(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The same list with neighbours that continue one another joined, and parts of one way left out."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        last = merged[-1] if merged else None
        if last and last.name == axis.name and last.pre * last.size == axis.pre:
            merged[-1] = Axis(last.name, last.pre, last.size * axis.size)
        else:
            merged.append(axis)
    return tuple(merged)


def refine(axes: tuple[Axis, ...], others: frozenset[Axis] | set[Axis]) -> tuple[Axis, ...]:
    """``axes`` cut at every boundary that one of ``others`` has inside them."""
    parts: list[Axis] = []
    for axis in axes:
        bounds = {b for o in others if o.name == axis.name for b in (o.pre, o.pre * o.size)}
        for cut in sorted(b for b in bounds if axis.pre < b < axis.pre * axis.size):
            if cut % axis.pre or (axis.pre * axis.size) % cut:
                continue
            head, axis = axis.split(cut // axis.pre)
            parts.append(head)
        parts.append(axis)
    return tuple(parts)


class AxisAttr(Dist.Attribute, name="axis"):
    """A sub-axis inside a sharding: ``#dist.axis<"tensor", 2 : i64, 2 : i64>`` (name, pre, size)."""

    axis_name: ir.StringAttr
    pre: ir.IntegerAttr
    size: ir.IntegerAttr
