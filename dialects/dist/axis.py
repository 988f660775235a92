"""``#dist.axis``: a mesh axis, or a contiguous part of one (a sub-axis)."""

from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.dist.dialect import Dist


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """A sub-axis: ``size`` ways of mesh axis ``name``, below ``pre`` ways that are more major.

    The whole of an axis of size 4 is ``Axis("tensor", 1, 4)``; its major half ``Axis("tensor", 1, 2)``, its
    minor half ``Axis("tensor", 2, 2)``. As in Shardy, a device's coordinate on the part is ``coordinate //
    (total / (pre * size)) % size``.
    """

    name: str
    pre: int
    size: int

    def overlaps(self, other: "Axis") -> bool:
        """Return whether the two sub-axes cannot be used in one sharding.

        They overlap if they share ways, or if the ways between them are not a whole number. On an axis of 6,
        the major 2 and the minor 2 overlap: 1.5 ways would lie between them. An axis and the time axis of its
        unequal shares overlap, because they use the same devices.
        """
        if self.size == 1 or other.size == 1:
            return False
        if self.name != other.name:
            return shared_axis(self.name) == shared_axis(other.name)
        low, high = sorted((self, other), key=lambda axis: axis.pre)
        return high.pre % (low.pre * low.size) != 0

    def split(self, major: int) -> "tuple[Axis, Axis]":
        """Return the sub-axis of the first ``major`` ways and the sub-axis of the rest."""
        return Axis(self.name, self.pre, major), Axis(self.name, self.pre * major, self.size // major)

    def __str__(self) -> str:
        return f"{self.name}:({self.pre}){self.size}"


_SHARE = "/share"


def share_name(axis: str) -> str:
    """Return the name of the time axis whose iterations are divided among the ranks along ``axis``."""
    return axis + _SHARE


def shared_axis(name: str) -> str:
    """Return the space axis behind a :func:`share_name`, or ``name`` itself if it is a space axis."""
    return name.removesuffix(_SHARE)


def merge(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return the list with adjacent sub-axes joined where one continues the other, without those of size
    1.
    """
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
    """Return ``axes`` split at every boundary of ``others`` that lies inside them."""
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
