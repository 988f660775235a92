"""Runs of equal layers in a model's lists. They make its costs affine in its depth."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from shardc.frontend.step.fold.signature import signature
from shardc.passes.search.repetitions import is_odd_chain

LONGEST_PERIOD = 8
"""Longest repeating pattern of layers, such as seven layers of one kind and one of another."""
FEWEST = 6
"""Fewest periods for which programs with two and with three periods together have fewer layers than one
program with all.
"""


@dataclass(frozen=True)
class Stretch:
    """Repetition in a list: from ``start`` on, the same ``period`` items occur ``count`` times."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


@dataclass(frozen=True)
class Run:
    """Equal layers of a list: ``owner``'s attribute ``name``, or the model itself if ``owner`` is None."""

    owner: nn.Module | None
    name: str
    layers: nn.ModuleList | nn.Sequential
    stretches: tuple[Stretch, ...]

    def shortened(self, periods: Sequence[int]) -> nn.ModuleList | nn.Sequential:
        """Return the list with the given number of periods for each stretch."""
        held, kept, done = list(self.layers), [], 0
        for stretch, count in zip(self.stretches, periods, strict=True):
            kept += held[done : stretch.start + count * stretch.period]
            done = stretch.end
        kept += held[done:]
        return nn.Sequential(*kept) if isinstance(self.layers, nn.Sequential) else nn.ModuleList(kept)


def runs_of(model: nn.Module) -> list[Run]:
    """Return the runs of a model's outermost lists. A list inside a layer of a run is part of that layer."""
    return list(_runs(model, None, ""))


def _runs(module: nn.Module, owner: nn.Module | None, name: str) -> Iterator[Run]:
    covered: set[int] = set()
    if isinstance(module, nn.ModuleList | nn.Sequential) and type(module) in (nn.ModuleList, nn.Sequential):
        found = stretches([signature(layer) for layer in module], [_matrices(layer) for layer in module])
        if found:
            yield Run(owner, name, module, found)
        covered = {n for stretch in found for n in range(stretch.start, stretch.end)}
    for number, (child_name, child) in enumerate(module.named_children()):
        if number not in covered:
            yield from _runs(child, module, child_name)


def _matrices(layer: nn.Module) -> int:
    return sum(parameter.dim() > 1 for parameter in layer.parameters())


def stretches(items: Sequence[Hashable | None], matrices: Sequence[int] = ()) -> tuple[Stretch, ...]:
    """Return the stretches of at least :data:`FEWEST` periods, each as long as possible, from the start on.

    An item None equals no other. An odd number of equal parts with a single matrix each is no period: the
    best cuts of a chain of products alternate (columns, rows). ``matrices``: how many each item has.
    """
    found: list[Stretch] = []
    at = 0
    while at < len(items):
        tried = [Stretch(at, p, _repeats(items, at, p)) for p in range(1, LONGEST_PERIOD + 1)]
        spans = [(s, slice(at, at + s.period)) for s in tried if s.count >= FEWEST]
        long = [s for s, span in spans if not is_odd_chain(items[span], sum(matrices[span]))]
        found += sorted(long, key=lambda s: (-s.end, s.period))[:1]
        at = found[-1].end if long else at + 1
    return tuple(found)


def _repeats(items: Sequence[Hashable | None], start: int, period: int) -> int:
    """Return how many times in a row the ``period`` items from ``start`` on occur."""
    first = items[start : start + period]
    if len(first) < period or None in first:
        return 0
    count = 1
    while items[start + count * period : start + (count + 1) * period] == first:
        count += 1
    return count
