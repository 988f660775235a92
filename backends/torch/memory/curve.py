"""Memory of a program's tensors over the time of its run, and what is alive at each moment."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardc.backends.torch.memory.moving import moving_lines

MOMENTS = 1000
"""Number of moments that are kept of a run."""
LARGEST_PLACES = 8
"""Number of places in each moment."""
ARGUMENTS = 0
"""Line number of arguments."""
HELD = -1
"""Block number of memory that is alive from start to end."""


@dataclass(frozen=True)
class Place:
    """Place where tensors are made: the phase, and the user's source line. Both are empty for arguments."""

    phase: str = ""
    where: str = ""


@dataclass(frozen=True)
class Moment:
    """Memory when the program has made ``made`` tensors.

    ``place``: number of the place of the last one. ``held``: the places with most memory, as (number of the
    place, bytes).
    """

    made: int
    size_bytes: int
    place: int
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Curve:
    """Memory over time. The run is divided evenly, and each part has the moment with its largest memory."""

    places: tuple[Place, ...] = ()
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True)
class Height:
    """Memory when a tensor is made at ``place``. ``moving_bytes``: bytes of collectives in flight.

    ``made``: number of tensors made by then, arguments included. ``call``: number of the call of a function
    that makes it, or of the part of the program between two calls. ``size_bytes``: size of the tensor.
    """

    place: Place
    fixed_bytes: int
    moving_bytes: int
    made: int = 0
    call: int = 0
    size_bytes: int = 0


class Log:
    """Log of allocations and frees, in order: bytes (negative for a free), and the line that allocated."""

    def __init__(self) -> None:
        self._bytes, self._lines, self._blocks = array("q"), array("l"), array("q")

    def add(self, size_bytes: int, line: int, block: int = 0) -> None:
        """Record an allocation, or with negative bytes a free. ``block``: identifies it among live blocks."""
        self._bytes.append(size_bytes)
        self._lines.append(line)
        self._blocks.append(block)

    def __len__(self) -> int:
        return len(self._bytes)

    def since(self, event: int) -> Iterator[tuple[int, int]]:
        """Return the requests from one on, as in :attr:`requests`."""
        return zip(self._blocks[event:], self._bytes[event:], strict=True)

    @property
    def requests(self) -> Iterator[tuple[int, int]]:
        """Requests as (block, bytes), in order."""
        return zip(self._blocks, self._bytes, strict=True)

    @property
    def given(self) -> int:
        """Number of requests that are arguments."""
        return self._start() + 1

    def hold(self, size_bytes: int) -> None:
        """Count memory that is alive from start to end."""
        if size_bytes:
            self._bytes.insert(0, size_bytes)
            self._lines.insert(0, ARGUMENTS)
            self._blocks.insert(0, HELD)

    def curve(self, program: Sequence[str], moments: int = MOMENTS) -> Curve:
        """Return the curve of a program with these lines: the start, and at most ``moments``."""
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
        """Return the memory at each tensor, in order, without those of prefetched gathers.

        ``places``: places of the program's lines.
        """
        moving, functions = moving_lines(program), _functions(program)
        kept = self._kept(places)
        found: list[Height] = []
        fixed = on_the_way = made = call = last = 0
        for event, (size, line) in enumerate(zip(self._bytes, self._lines, strict=True)):
            made += size > 0 and self._blocks[event] != HELD
            if line in moving:
                on_the_way += 0 if event in kept else size
                fixed += size if event in kept else 0
            else:
                fixed += size
                if size > 0 and line != ARGUMENTS:
                    call += functions[line] != functions[last] or line < last
                    last = line
                    found.append(Height(places[line], fixed, on_the_way, made, call, size))
        return found

    def _kept(self, places: Sequence[Place]) -> frozenset[int]:
        """Return the events that make or free a tensor which outlives the phase that makes it."""
        found, phase = list[int](), ""
        alive: dict[int, tuple[int, str]] = {}
        for event, (size, line) in enumerate(zip(self._bytes, self._lines, strict=True)):
            if size > 0:
                phase = places[line].phase
                alive[self._blocks[event]] = event, phase
            elif size < 0 and (began := alive.pop(self._blocks[event], None)) and began[1] != phase:
                found += (began[0], event)
        return frozenset((*found, *(event for event, _ in alive.values())))

    def _largest(self, moments: int) -> dict[int, int]:
        """Return event -> number of tensors made by then: the start, and each bucket's largest moment."""
        sizes = list(self._made())
        kept = {start: 0} if (start := self._start()) >= 0 else {}
        bucket = -(-len(sizes) // moments) or 1
        for first in range(0, len(sizes), bucket):
            number = max(range(first, min(first + bucket, len(sizes))), key=lambda n: sizes[n][1])
            kept[sizes[number][0]] = number + 1
        return kept

    def _start(self) -> int:
        """Return the last event before the program runs; -1 without arguments."""
        return next((n for n, line in enumerate(self._lines) if line != ARGUMENTS), len(self._lines)) - 1

    def _made(self) -> Iterator[tuple[int, int]]:
        """Yield the event of each tensor that the program makes, with the bytes alive then."""
        now = 0
        for event, (size, line) in enumerate(zip(self._bytes, self._lines, strict=True)):
            now += size
            if size > 0 and line != ARGUMENTS:
                yield event, now


def _functions(program: Sequence[str]) -> list[int]:
    """Return the line at which the function of each line, from 1 on, begins."""
    found = [ARGUMENTS]
    for line, text in enumerate(program, start=1):
        found.append(line if text.lstrip().startswith("def ") else found[-1])
    return found


def places_of(program: Sequence[str]) -> list[Place]:
    """Return the place of each line, from 1 on, by the comments above it; 0 is the place of arguments."""
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
