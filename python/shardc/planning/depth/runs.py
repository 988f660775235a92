"""Runs of equal layers in the lists of a model: what makes its costs affine in its depth."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from shardc.frontend.step.fold.signature import signature

LONGEST_PERIOD = 8
"""Layers after which a pattern of layers may start again: seven of one kind and one of another."""
FEWEST = 6
"""Periods of a run from which on two programs, of two and of three periods, have fewer layers than one."""


@dataclass(frozen=True)
class Stretch:
    """``count`` times the same ``period`` items from ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


@dataclass(frozen=True)
class Run:
    """Equal layers of the list that is ``owner``'s attribute ``name``; of the model itself if ``owner`` is
    None.
    """

    owner: nn.Module | None
    name: str
    layers: nn.ModuleList | nn.Sequential
    stretches: tuple[Stretch, ...]

    def shortened(self, periods: Sequence[int]) -> nn.ModuleList | nn.Sequential:
        """The list with so many periods of each stretch."""
        held, kept, done = list(self.layers), [], 0
        for stretch, count in zip(self.stretches, periods, strict=True):
            kept += held[done : stretch.start + count * stretch.period]
            done = stretch.end
        kept += held[done:]
        return nn.Sequential(*kept) if isinstance(self.layers, nn.Sequential) else nn.ModuleList(kept)


def runs_of(model: nn.Module) -> list[Run]:
    """Of the outermost lists; a list inside a layer of a run is part of that layer."""
    return list(_runs(model, None, ""))


def _runs(module: nn.Module, owner: nn.Module | None, name: str) -> Iterator[Run]:
    covered: set[int] = set()
    if isinstance(module, nn.ModuleList | nn.Sequential) and type(module) in (nn.ModuleList, nn.Sequential):
        found = stretches([signature(layer) for layer in module])
        if found:
            yield Run(owner, name, module, found)
        covered = {n for stretch in found for n in range(stretch.start, stretch.end)}
    for number, (child_name, child) in enumerate(module.named_children()):
        if number not in covered:
            yield from _runs(child, module, child_name)


def stretches(items: Sequence[Hashable | None]) -> tuple[Stretch, ...]:
    """Stretches of at least :data:`FEWEST` periods, each as long as it can be, from the first item on.

    None equals nothing.
    """
    found: list[Stretch] = []
    at = 0
    while at < len(items):
        tried = [Stretch(at, p, _repeats(items, at, p)) for p in range(1, LONGEST_PERIOD + 1)]
        long = [stretch for stretch in tried if stretch.count >= FEWEST]
        found += sorted(long, key=lambda s: (-s.end, s.period))[:1]
        at = found[-1].end if long else at + 1
    return tuple(found)


def _repeats(items: Sequence[Hashable | None], start: int, period: int) -> int:
    """How often the ``period`` items from ``start`` on stand one behind the other."""
    first = items[start : start + period]
    if len(first) < period or None in first:
        return 0
    count = 1
    while items[start + count * period : start + (count + 1) * period] == first:
        count += 1
    return count
