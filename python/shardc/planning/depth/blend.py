"""Extrapolation of costs that are affine in the number of layers: a shallow program's, plus each layer's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from shardc.backends.torch.memory.curve import Height
from shardc.backends.torch.memory.dry_run import Peak
from shardc.backends.torch.memory.kinds import COLLECTIVES, Alive
from shardc.cost.memory import IN_FLIGHT_BYTES, PREFETCH_BYTES
from shardc.cost.step.step_time import StepTime
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.planning.depth.moments import aligned, by_call, by_phase, inserted
from shardc.planning.memory import RankMemory
from shardc.report.device_work import DeviceWork, Work
from shardc.report.traffic import Transfer

WINDOW_BYTES = PREFETCH_BYTES + IN_FLIGHT_BYTES
"""Maximum bytes of prefetched collectives, independent of the number of layers."""


class NotAffine(Exception):
    """Raised if a number of a plan is not affine in the number of layers."""


T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Blend:
    """Extrapolation to a program with more layers than were compiled.

    It adds to the shallow program ``more[i]`` times the difference between the ``i``-th deeper program and
    the shallow one. ``by_call``: the programs make the same calls of functions, in which the layers are.
    """

    more: tuple[int, ...]
    by_call: bool = False

    def of(self, shallow: float, deeper: Iterable[float]) -> float:
        """Return a number of the whole program. Integers stay exact."""
        return shallow + sum(n * (value - shallow) for n, value in zip(self.more, deeper, strict=True))

    def sums(self, shallow: Mapping[Key, float], deeper: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
        """Return numbers of the whole program by key. A key that a program lacks counts as 0."""
        keys = dict.fromkeys(key for held in (shallow, *deeper) for key in held)
        return {key: self.of(shallow.get(key, 0), [held.get(key, 0) for held in deeper]) for key in keys}

    def time(self, shallow: StepTime, deeper: Sequence[StepTime]) -> StepTime:
        """Return the time of a step."""

        def of(number: Callable[[StepTime], float]) -> float:
            return self.of(number(shallow), [number(time) for time in deeper])

        causes = self.sums(shallow.causes, [time.causes for time in deeper])
        places = self.sums(shallow.places, [time.places for time in deeper])
        flops = of(lambda t: t.flops), of(lambda t: t.again_flops)
        return StepTime(of(lambda t: t.seconds), causes, *flops, places=places)

    def work(self, shallow: DeviceWork, deeper: Sequence[DeviceWork]) -> DeviceWork:
        """Return the devices' work, one call for each source line."""
        own = self._calls(shallow.own, [work.own for work in deeper])
        return DeviceWork(own, self._calls(shallow.single, [work.single for work in deeper]), shallow.space)

    def _calls(self, shallow: Sequence[Work], deeper: Sequence[Sequence[Work]]) -> list[Work]:
        flops = self._sums_of([shallow, *deeper], _call, lambda work: work.flops)
        sizes = self._sums_of([shallow, *deeper], _call, lambda work: work.bytes_moved)
        return [
            Work(phase, where, count, sizes[phase, where, axes], axes)
            for (phase, where, axes), count in flops.items()
        ]

    def transfers(self, shallow: Sequence[Transfer], deeper: Sequence[Sequence[Transfer]]) -> list[Transfer]:
        """Return the collectives. Those that differ only in their place become one that runs more often."""
        times = self._sums_of([shallow, *deeper], _kind, lambda transfer: transfer.times)
        sizes = self._sums_of([shallow, *deeper], _kind, lambda transfer: transfer.bytes_moved)
        return [replace(kind, times=int(n), bytes_moved=sizes[kind]) for kind, n in times.items()]

    def _sums_of(
        self, programs: Sequence[Iterable[T]], key: Callable[[T], Key], number: Callable[[T], float]
    ) -> dict[Key, float]:
        shallow, *deeper = (_summed(items, key, number) for items in programs)
        return self.sums(shallow, deeper)

    def memory(self, shallow: RankMemory, deeper: Sequence[RankMemory]) -> RankMemory:
        """Return the memory of a rank."""
        given = self.sums(shallow.given, [rank.given for rank in deeper])
        held = {role: int(size) for role, size in given.items()}
        known = {(argument.role, argument.name) for argument in shallow.arguments}
        added = [
            [argument for argument in rank.arguments if (argument.role, argument.name) not in known] * more
            for more, rank in zip(self.more, deeper, strict=True)
        ]
        arguments = [*shallow.arguments, *chain.from_iterable(added)]
        peak = self._peak(shallow.peak, [rank.peak for rank in deeper])
        found = replace(shallow, given=held, peak=peak, arguments=arguments)
        # Allocator slack depends on the largest tensors, which have the same size at each depth.
        slack = max(rank.reserved_bytes - rank.peak_bytes for rank in (shallow, *deeper))
        return replace(found, reserved=found.peak_bytes + slack)

    def _peak(self, shallow: Peak | PeakUnknown, deeper: Sequence[Peak | PeakUnknown]) -> Peak | PeakUnknown:
        known = [peak for peak in (shallow, *deeper) if isinstance(peak, Peak)]
        if len(known) <= len(deeper):
            return next(peak for peak in (shallow, *deeper) if isinstance(peak, PeakUnknown))
        moments, size = max(self._heights(known[0], known[1:]), key=lambda pair: pair[1])
        given = int(self.of(known[0].given_bytes, [peak.given_bytes for peak in known[1:]]))
        then = [peak.record.alive(height.made) for peak, height in zip(known, moments, strict=True)]
        alive = self._sums_of(then, _kind_of_memory, lambda a: a.size_bytes)
        held = [replace(kind, size_bytes=int(bytes_alive)) for kind, bytes_alive in alive.items()]
        excess = given + sum(kind.size_bytes for kind in held) - size
        held = tuple(_without(held, excess) if excess > 0 else held)
        where = moments[0].place.where
        return replace(known[0], size_bytes=size, given_bytes=given, where=where, alive=held)

    def _heights(self, shallow: Peak, deeper: Sequence[Peak]) -> Iterator[tuple[list[Height], int]]:
        """Yield matching moments of all programs, and the bytes alive then in the whole program.

        A moment is one at which a compiled layer makes a tensor. Between such moments only the layers that
        were left out make tensors.
        """
        if self.by_call:
            yield from self._heights_by_call(shallow, deeper)
            return
        held = by_phase(shallow.record.heights)
        phases = [by_phase(peak.record.heights) for peak in deeper]
        highest = max(shallow.record.heights, key=_total_bytes)
        for phase, made in held.items():
            found = [list(aligned(made, other.get(phase, []))) for other in phases]
            for height, *more in zip([*made, *made], *found, strict=True):
                yield from self._matched(height, more, is_needed=height is highest)

    def _heights_by_call(self, shallow: Peak, deeper: Sequence[Peak]) -> Iterator[tuple[list[Height], int]]:
        calls = by_call(shallow.record.heights)
        others = [by_call(peak.record.heights) for peak in deeper]
        if any(len(other) != len(calls) for other in others):
            raise NotAffine("a deeper model makes other calls")
        found = [
            (made, *(inserted(made, other) for other in longer))
            for made, *longer in zip(calls, *others, strict=True)
        ]
        highest = max(shallow.record.heights, key=_total_bytes)
        for height, *more in chain.from_iterable(zip(*call, strict=True) for call in found):
            yield from self._matched(height, more, is_needed=height is highest)

    def _matched(
        self, height: Height, deeper: Sequence[Height | None], *, is_needed: bool
    ) -> Iterator[tuple[list[Height], int]]:
        """Yield a moment with those of the deeper programs, if all have one. Raises NotAffine if it is needed
        and one has none.
        """
        others = [other for other in deeper if other is not None]
        if len(others) == len(deeper):
            yield [height, *others], self._height(height, others)
        elif is_needed:
            raise NotAffine(f"a deeper model does not make what this one makes at {height.place.where}")

    def _height(self, shallow: Height, deeper: Sequence[Height]) -> int:
        """Return the bytes alive in the whole program. Bytes of collectives in flight are bounded."""
        fixed = self.of(shallow.fixed_bytes, [other.fixed_bytes for other in deeper])
        moving = self.of(shallow.moving_bytes, [other.moving_bytes for other in deeper])
        most = max(WINDOW_BYTES, *(other.moving_bytes for other in (shallow, *deeper)))
        return int(fixed + min(moving, most))


def _summed(items: Iterable[T], key: Callable[[T], Key], number: Callable[[T], float]) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for item in items:
        found[key(item)] = found.get(key(item), 0) + number(item)
    return found


def _call(work: Work) -> tuple[str, str | None, frozenset[str] | None]:
    return work.phase, work.where, work.axes


def _kind_of_memory(alive: Alive) -> Alive:
    return replace(alive, size_bytes=0)


def _kind(transfer: Transfer) -> Transfer:
    return replace(transfer, times=0, bytes_moved=0.0)


def _without(held: Sequence[Alive], excess: int) -> Iterator[Alive]:
    """Yield what is alive, with ``excess`` bytes of collectives removed.

    Bytes of collectives are bounded in a deep model, but still grow with the layers in shallow programs.
    """
    for alive in held:
        less = min(excess, alive.size_bytes) if alive.kind == COLLECTIVES else 0
        excess -= less
        yield replace(alive, size_bytes=alive.size_bytes - less)


def _total_bytes(height: Height) -> int:
    return height.fixed_bytes + height.moving_bytes
