"""Moments of two runs' memory that match: those of a program, and of one with more equal layers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby

from shardc.backends.torch.memory.curve import Height

ALIKE = 32
"""Number of consecutive tensors, equal in size and place, by which points of two programs are matched."""
SURE = 8
"""Number of such tensors that are enough."""


def by_phase(heights: Sequence[Height]) -> dict[tuple[str, int], list[Height]]:
    """Return moments by phase and by call, since each micro-batch makes the same calls once more."""
    found: dict[tuple[str, int], list[Height]] = {}
    for height in heights:
        found.setdefault((height.place.phase, height.call), []).append(height)
    return found


def by_call(heights: Sequence[Height]) -> list[list[Height]]:
    """Return moments by call of a function, and by part of the program between two calls."""
    return [list(made) for _, made in groupby(heights, key=lambda height: height.call)]


def inserted(made: Sequence[Height], longer: Sequence[Height]) -> list[Height | None]:
    """Return the moments of ``longer`` that are those of ``made``, around what it has more.

    Equal layers leave open at which of many places that is. The one in the middle is taken, which is within
    whole layers. If ``longer`` does more than insert moments, as where it packs tensors differently, the
    longest equal stretches are matched, and other moments have None.
    """
    keys, others = ([(height.place, height.size_bytes) for height in of] for of in (made, longer))
    places = _around(keys, others)
    if places is None:
        equal = SequenceMatcher(None, keys, others, autojunk=False).get_matching_blocks()
        places = {first + n: second + n for first, second, size in equal for n in range(size)}
    return [longer[places[number]] if number in places else None for number in range(len(made))]


def _around(keys: Sequence[Hashable], others: Sequence[Hashable]) -> dict[int, int] | None:
    """Return the positions in ``others`` by number of key; None if those do more than insert items."""
    found = list[int]()
    at = shift = begin = 0
    while True:
        at += _common(keys[at:], others[at + shift :])
        if at == len(keys) and at + shift == len(others):
            return dict(enumerate((*found, *range(begin + shift, len(others)))))
        more = _longest(keys[at:], others[at:], shift + 1)
        if more is None:
            return None
        first = at
        while first > begin and keys[first - 1] == others[first - 1 + more]:
            first -= 1
        middle = (first + at) // 2
        found += range(begin + shift, middle + shift)
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


def aligned(made: Sequence[Height], deeper: Sequence[Height]) -> Iterator[Height | None]:
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
