"""The memory that a program's tensors take over the time of its run, and what is alive at each moment."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardc.backends.torch.memory.moving import moving_lines

MOMENTS = 1000
"""How many moments of a run are kept."""
LARGEST_PLACES = 8
"""How many places each moment names."""
ARGUMENTS = 0
"""The line of what the program was given."""
HELD = -1
"""The block of what is there from the start to the end."""


@dataclass(frozen=True)
class Place:
    """Where tensors are made: the phase, and the user's source line. Both are empty for arguments."""

    phase: str = ""
    where: str = ""


@dataclass(frozen=True)
class Moment:
    """The memory when the program's tensor number ``made`` had been made (0: none yet).

    ``place``: where that was. ``held``: the places whose tensors take most, as (number of the place, bytes).
    """

    made: int
    size_bytes: int
    place: int
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Curve:
    """Memory over time: of equal stretches of the run, the moment of each at which it is largest."""

    places: tuple[Place, ...] = ()
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True)
class Height:
    """What is alive as a tensor is made at ``place``. ``moving_bytes``: of collectives that are under way.
    ``made``: how many have been made by then, arguments included.
    """

    place: Place
    fixed_bytes: int
    moving_bytes: int
    made: int = 0


class Log:
    """What was made and given up, in order: bytes (negative when given up), and the line that made it."""

    def __init__(self) -> None:
        self._bytes, self._lines, self._blocks = array("q"), array("l"), array("q")

    def add(self, size_bytes: int, line: int, block: int = 0) -> None:
        """Note memory, or with negative bytes the end of it. ``block`` tells it from others alive."""
        self._bytes.append(size_bytes)
        self._lines.append(line)
        self._blocks.append(block)

    @property
    def requests(self) -> Iterator[tuple[int, int]]:
        """(block, bytes) in order."""
        return zip(self._blocks, self._bytes, strict=True)

    @property
    def given(self) -> int:
        """How many of the requests are arguments."""
        return self._start() + 1

    def hold(self, size_bytes: int) -> None:
        """Count memory that is there from the start to the end."""
        if size_bytes:
            self._bytes.insert(0, size_bytes)
            self._lines.insert(0, ARGUMENTS)
            self._blocks.insert(0, HELD)

    def curve(self, program: Sequence[str], moments: int = MOMENTS) -> Curve:
        """At most ``moments`` and the start, of a program with these lines."""
        table, kept = places_of(program), self._largest(moments)
        numbers = {Place(): 0}
        held: dict[int, int] = {}
        found: list[Moment] = []
        for event, (size, line) in enumerate(zip(self._bytes, self._lines, strict=True)):
            place = numbers.setdefault(table[line], len(numbers))
            held[place] = held.get(place, 0) + size
            if event in kept:
                largest = heapq.nlargest(LARGEST_PLACES, held.items(), key=lambda item: item[1])
                alive = tuple((number, size) for number, size in largest if size)
                found.append(Moment(kept[event], sum(held.values()), place, alive))
        return Curve(tuple(numbers), tuple(found))

    def heights(self, program: Sequence[str], places: Sequence[Place]) -> list[Height]:
        """What is alive as each tensor is made, in order; those that gathers make ahead are left out.

        ``places``: of the program's lines.
        """
        moving = moving_lines(program)
        found: list[Height] = []
        fixed = on_the_way = made = 0
        for size, line, block in zip(self._bytes, self._lines, self._blocks, strict=True):
            made += size > 0 and block != HELD
            if line in moving:
                on_the_way += size
            else:
                fixed += size
                if size > 0 and line != ARGUMENTS:
                    found.append(Height(places[line], fixed, on_the_way, made))
        return found

    def _largest(self, moments: int) -> dict[int, int]:
        """Event -> how many tensors are made by then: the start, and the largest moment of each bucket."""
        sizes = list(self._made())
        kept = {start: 0} if (start := self._start()) >= 0 else {}
        bucket = -(-len(sizes) // moments) or 1
        for first in range(0, len(sizes), bucket):
            number = max(range(first, min(first + bucket, len(sizes))), key=lambda n: sizes[n][1])
            kept[sizes[number][0]] = number + 1
        return kept

    def _start(self) -> int:
        """The last event before the program runs; -1 if it was given nothing."""
        return next((n for n, line in enumerate(self._lines) if line != ARGUMENTS), len(self._lines)) - 1

    def _made(self) -> Iterator[tuple[int, int]]:
        """Each tensor that the program makes: the event, and the bytes that are alive then."""
        now = 0
        for event, (size, line) in enumerate(zip(self._bytes, self._lines, strict=True)):
            now += size
            if size > 0 and line != ARGUMENTS:
                yield event, now


def places_of(program: Sequence[str]) -> list[Place]:
    """The place of each line, from 1 on, as the comments above it say; 0 is that of arguments."""
    found, place = [Place()], Place()
    for text in program:
        said = text.strip()
        if said.startswith("def "):
            place = Place()
        elif said.startswith("# -- "):
            place = Place(said.removeprefix("# -- "), place.where)
        elif said.startswith("# "):
            place = Place(place.phase, said.removeprefix("# "))
        found.append(place)
    return found
