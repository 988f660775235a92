"""Work of a step as data, from which its time on any cluster is estimated.

A step is read from a program once (:mod:`shardc.report.step.read_step`). Estimates for another cluster,
number of micro-batches or number of layers need no compile.
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
        kind: ``matmul``, ``attention``, ``collective``, or ``memory``: a group of ops that passes over memory
            once.
        phase: ``forward``, ``backward``, ``optimizer``, ...
        needs: Numbers of the items, in the same section, whose results it reads.
        moved_bytes: Size of the tensors that it reads and writes, each once; of a collective's operand.
        flops: FLOP of its products, with those that a causal mask hides.
        seen: Share of ``flops`` that a causal mask leaves.
        product: Sizes of a matmul.
        collective: Name of a collective, such as ``all_reduce``.
        axes: Mesh axes, or parts of them, that a collective spans.
        is_plain: Whether a pass over memory is pointwise and draws no random numbers; others compute more per
            byte.
        calls: ATen calls for it in a program without kernels.
        name: Its first ATen call, such as ``aten.mm``, or the collective's name.
        where: The user's source line of that call; empty if it has none.
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
    seen: float = 1.0

    @property
    def computed_flops(self) -> float:
        """Return the FLOP that the kernel computes."""
        return self.flops * self.seen


@dataclass(frozen=True)
class Section:
    """Items in program order, run ``times`` times in sequence."""

    items: tuple[Item, ...]
    times: int = 1


@dataclass(frozen=True)
class StageWork:
    """Work of one pipeline stage for a micro-batch, and once per step.

    ``actions``: the items of each kind of action: ``F``, ``B``, ``I``, ``W``; ``REDUCE_GRAD`` once per step.
    Slices of sequences have items of their own, see :func:`action_key`. ``sent_bytes``: size of what it sends
    to the next stage per micro-batch; the gradient back is as large.
    ``kept_bytes``: size of the activations that it keeps for the backward of a micro-batch.
    """

    actions: dict[str, tuple[Item, ...]]
    sent_bytes: float = 0.0
    kept_bytes: float = 0.0

    def times(self, count: int) -> StageWork:
        """Return the work of ``count`` equal layers in sequence."""
        actions = {kind: repeat(items, count) for kind, items in self.actions.items()}
        return replace(self, actions=actions, kept_bytes=count * self.kept_bytes)

    def then(self, other: StageWork) -> StageWork:
        """Return the work of both; ``other`` runs after this in forward and before it in backward."""
        kinds = dict.fromkeys([*self.actions, *other.actions])
        joined: dict[str, tuple[Item, ...]] = {}
        for kind in kinds:
            parts = [self.actions.get(kind, ()), other.actions.get(kind, ())]
            joined[kind] = chain(parts if kind == "F" else parts[::-1])
        return StageWork(joined, other.sent_bytes, self.kept_bytes + other.kept_bytes)


@dataclass(frozen=True)
class StepWork:
    """Work of a whole step.

    ``stages``: the stages of a pipeline in the order of their route; empty without one. ``ranks``: what each
    of the pipeline's ranks, or the one program, runs once per step. ``shared``: the mesh axis of unequal
    shares, empty without them; ``ranks`` are then those at each place along it, by the number of iterations
    of their loops.
    """

    stages: tuple[StageWork, ...]
    ranks: tuple[tuple[Section, ...], ...]
    shared: str = ""

    def resized(self, axis: str, size: int) -> StepWork:
        """Return the same work per device on a mesh with another size of one axis."""
        stages = tuple(
            replace(s, actions={k: _resized(items, axis, size) for k, items in s.actions.items()})
            for s in self.stages
        )
        ranks = tuple(
            tuple(replace(s, items=_resized(s.items, axis, size)) for s in sections)
            for sections in self.ranks
        )
        return StepWork(stages, ranks, self.shared)


@dataclass(frozen=True)
class Deeper:
    """The work of a pipeline whose stages have a layer more, and how many more layers each stage really has.

    The ``more[i]`` layers of stage ``i`` each take what ``work`` takes more there than a step with fewer
    layers. The one stage of rank ``i`` is stage ``i``.
    """

    work: StepWork
    more: tuple[int, ...]


def action_key(kind: str, number: int = 0) -> str:
    """Return the key in ``StageWork.actions`` of a kind of action of slice ``number``, such as ``F_2``."""
    return f"{kind}_{number}" if number else kind


def repeat(items: Sequence[Item], times: int) -> tuple[Item, ...]:
    """Return the items ``times`` times, each time after the last."""
    return chain([items] * times)


def chain(parts: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
    """Concatenate sequences; an item without needs waits for the last item of the previous part."""
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
