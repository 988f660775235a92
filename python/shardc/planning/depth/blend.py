"""Extrapolation of costs that are affine in the number of layers: a shallow program's, plus each layer's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TypeVar

from shardc.backends.torch.memory.curve import Height
from shardc.backends.torch.memory.dry_run import Peak
from shardc.backends.torch.memory.kinds import COLLECTIVES, Alive
from shardc.cost.memory import IN_FLIGHT_BYTES, PREFETCH_BYTES
from shardc.cost.step.step_time import StepTime
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.planning.memory import RankMemory
from shardc.report.device_work import DeviceWork, Work
from shardc.report.traffic import Transfer

WINDOW_BYTES = PREFETCH_BYTES + IN_FLIGHT_BYTES
"""Maximum bytes of prefetched collectives, independent of the number of layers."""


ALIKE = 32
"""Number of consecutive tensors, equal in size and place, by which points of two programs are matched."""
SURE = 8
"""Number of such tensors that are enough."""


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
        held = _by_phase(shallow.record.heights)
        phases = [_by_phase(peak.record.heights) for peak in deeper]
        highest = max(shallow.record.heights, key=lambda height: height.fixed_bytes + height.moving_bytes)
        for phase, made in held.items():
            found = [list(_aligned(made, other.get(phase, []))) for other in phases]
            for height, *more in zip([*made, *made], *found, strict=True):
                others = [other for other in more if other is not None]
                if len(others) == len(more):
                    yield [height, *others], self._height(height, others)
                elif height is highest:
                    raise NotAffine(
                        f"a deeper model does not make what this one makes at {height.place.where}"
                    )

    def _heights_by_call(self, shallow: Peak, deeper: Sequence[Peak]) -> Iterator[tuple[list[Height], int]]:
        calls = _by_call(shallow.record.heights)
        others = [_by_call(peak.record.heights) for peak in deeper]
        if any(len(other) != len(calls) for other in others):
            raise NotAffine("a deeper model makes other calls")
        for made, *longer in zip(calls, *others, strict=True):
            for height, *more in zip(made, *(_inserted(made, other) for other in longer), strict=True):
                yield [height, *more], self._height(height, more)

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


def _by_phase(heights: Sequence[Height]) -> dict[tuple[str, int], list[Height]]:
    """Return moments by phase and by call, since each micro-batch makes the same calls once more."""
    found: dict[tuple[str, int], list[Height]] = {}
    for height in heights:
        found.setdefault((height.place.phase, height.call), []).append(height)
    return found


def _by_call(heights: Sequence[Height]) -> list[list[Height]]:
    return [list(made) for _, made in groupby(heights, key=lambda height: height.call)]


def _inserted(made: Sequence[Height], longer: Sequence[Height]) -> list[Height]:
    """Return the moments of ``longer`` that are those of ``made``, around what it has more.

    Equal layers leave open at which of many places that is. The one in the middle is taken, which is within
    whole layers. Raises NotAffine.
    """
    keys, others = ([(height.place, height.size_bytes) for height in of] for of in (made, longer))
    found = list[Height]()
    at = shift = begin = 0
    while True:
        at += _common(keys[at:], others[at + shift :])
        if at == len(keys) and at + shift == len(others):
            return [*found, *longer[begin + shift :]]
        more = _longest(keys[at:], others[at:], shift + 1)
        if more is None:
            where = made[min(at, len(made) - 1)].place.where
            raise NotAffine(f"a deeper model does not make what this one makes at {where}")
        first = at
        while first > begin and keys[first - 1] == others[first - 1 + more]:
            first -= 1
        middle = (first + at) // 2
        found += longer[begin + shift : middle + shift]
        begin, shift = middle, more


def _longest(keys: Sequence[object], others: Sequence[object], start: int) -> int | None:
    """Return where in ``others``, from ``start`` on, the longest sequence begins that ``keys`` begin with."""
    if not keys:
        return len(others)
    lengths = {n: _common(keys, others[n:]) for n in range(start, len(others) - len(keys) + 1)}
    best = max(lengths, key=lambda n: (lengths[n], -n), default=None)
    return best if best is not None and lengths[best] else None


def _common(first: Sequence[object], second: Sequence[object]) -> int:
    """Return how many items are equal at the start."""
    unequal = (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(unequal, min(len(first), len(second)))


def _aligned(made: Sequence[Height], deeper: Sequence[Height]) -> Iterator[Height | None]:
    """Yield the deeper program's moments that match the shallow one's: None where there is no match.

    The moments are matched twice: from the start, with the additional layer behind the others, and from the
    end, with it before them.
    """
    places, others = ([(height.place, height.size_bytes) for height in of] for of in (made, deeper))
    yield from (None if at is None else deeper[at] for at in _places(places, others))
    behind = reversed(list(_places(places[::-1], others[::-1])))
    yield from (None if at is None else deeper[-1 - at] for at in behind)


def _places(items: Sequence[Hashable], longer: Sequence[Hashable]) -> Iterator[int | None]:
    """Yield the position of each item in a longer sequence, with as few others in between as possible.

    Where the sequences part, the items that follow decide.
    """
    at = 0
    found: int | None = 0
    for number, item in enumerate(items):
        is_next = found is not None and longer[at : at + 1] == [item]
        found = at if is_next else _next(items[number : number + ALIKE], longer, at)
        yield found
        at = at if found is None else found + 1


def _next(items: Sequence[Hashable], longer: Sequence[Hashable], start: int) -> int | None:
    """Return where in ``longer``, from ``start`` on, most of ``items`` follow each other; None if too few do.

    Of equal positions the first is returned, or the last if ``items`` are the last of their sequence.
    """
    places = range(start, len(longer))
    lengths = {n: _common(items, longer[n : n + len(items)]) for n in places if longer[n] == items[0]}
    is_end = len(items) < ALIKE
    best = max(lengths, key=lambda n: (lengths[n], n if is_end else -n), default=None)
    return best if best is not None and lengths[best] >= min(len(items), SURE) else None
