"""What a step consists of, as data that any cluster can be asked the time of.

A step is read from a program once (:mod:`shardc.report.step.read_step`); costing it for another cluster,
another number of micro-batches or of layers takes no compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shardc.cost.ops import Product
from shardc.dialects.dist.axis import Axis

Kind = Literal["matmul", "attention", "memory", "collective"]


@dataclass(frozen=True)
class Item:
    """One kernel of a device, or one collective.

    Args:
        kind: What it is. ``memory``: a group of ops that passes over memory once.
        phase: ``forward``, ``backward``, ``optimizer``, ...
        needs: Numbers of the items, in the same section, whose results it reads.
        moved_bytes: Of the tensors that it reads and writes, each once; of a collective its operand.
        flops: Of its products.
        product: The sizes of a product of matrices.
        collective: Of a collective its name, such as ``all_reduce``.
        axes: The mesh axes, or parts of them, that it spans.
        is_plain: Whether a pass over memory is pointwise and draws no random numbers; others compute more for
            each byte.
        calls: ATen calls that a program without kernels makes for it.
        name: Its first ATen call, such as ``aten.mm``; of a collective its name.
        where: The user's source line of that call, empty if it has none.
    """

    kind: Kind
    phase: str
    needs: tuple[int, ...] = ()
    moved_bytes: float = 0.0
    flops: float = 0.0
    product: Product | None = None
    element_bytes: int = 2
    collective: str = ""
    axes: tuple[Axis, ...] = ()
    is_plain: bool = True
    calls: int = 1
    name: str = ""
    where: str = ""


@dataclass(frozen=True)
class Section:
    """Items in program order, run ``times`` times one after the other."""

    items: tuple[Item, ...]
    times: int = 1


@dataclass(frozen=True)
class StageWork:
    """What one stage of a pipeline does for a micro-batch, and once a step.

    ``actions``: the items of each kind of action: ``F``, ``B``, ``I``, ``W``; ``REDUCE_GRAD`` once a step.
    ``sent_bytes``: what it sends on to the next stage for each micro-batch; the gradient back is as large.
    """

    actions: dict[str, tuple[Item, ...]]
    sent_bytes: float = 0.0

    def times(self, count: int) -> StageWork:
        """The same work, ``count`` times one after the other, as of equal layers."""
        return replace(self, actions={kind: repeat(items, count) for kind, items in self.actions.items()})

    def then(self, other: StageWork) -> StageWork:
        """Both, one after the other; ``other`` comes behind in forward and in front in backward."""
        kinds = dict.fromkeys([*self.actions, *other.actions])
        joined: dict[str, tuple[Item, ...]] = {}
        for kind in kinds:
            parts = [self.actions.get(kind, ()), other.actions.get(kind, ())]
            joined[kind] = chain(parts if kind == "F" else parts[::-1])
        return StageWork(joined, other.sent_bytes)


@dataclass(frozen=True)
class StepWork:
    """A whole step: the ``stages`` of a pipeline in the order of their route, none without one, and what each
    of its ``ranks``, or the one program, runs once a step.

    ``shared``: the mesh axis of unequal shares, empty without them; ``ranks`` are then those at each place
    along it, by the number of turns that their loops take.
    """

    stages: tuple[StageWork, ...]
    ranks: tuple[tuple[Section, ...], ...]
    shared: str = ""

    def resized(self, axis: str, size: int) -> StepWork:
        """The same work of each device on a mesh of which an axis has another size."""
        stages = tuple(
            replace(s, actions={k: _resized(items, axis, size) for k, items in s.actions.items()})
            for s in self.stages
        )
        ranks = tuple(
            tuple(replace(s, items=_resized(s.items, axis, size)) for s in sections)
            for sections in self.ranks
        )
        return StepWork(stages, ranks, self.shared)


def repeat(items: Sequence[Item], times: int) -> tuple[Item, ...]:
    """The items ``times`` times, each time behind the last."""
    return chain([items] * times)


def chain(parts: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
    """Sequences of items as one: what waits for nothing in a part waits for the last item before the part."""
    made: list[Item] = []
    for part in parts:
        base = len(made)
        behind = (base - 1,) if base else ()
        made += [replace(item, needs=tuple(n + base for n in item.needs) or behind) for item in part]
    return tuple(made)


def _resized(items: Sequence[Item], axis: str, size: int) -> tuple[Item, ...]:
    def of(part: Axis) -> Axis:
        return Axis(axis, 1, size) if part.name == axis else part

    return tuple(replace(item, axes=tuple(map(of, item.axes))) if item.axes else item for item in items)
