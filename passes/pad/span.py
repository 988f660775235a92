"""Which part of a dim is padded, and how that reads after the dim was split or merged.

A dim of 45 that is 3 sequences of 15 tokens, padded to 4 sequences, has the span ``Span(15, 3, 4)``: of
what lies 15 elements apart there are 3, and 4 with padding. Padding always stands at the end of its span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

from shardc.dialects.rules.rule import Dim


@dataclass(frozen=True)
class Span:
    """``size`` blocks of ``minor`` elements each, padded to ``padded`` blocks; in lowest terms.

    ``stored``: only what is kept between steps is padded so, and the optimizer's work on it (ZeRO's cuts).
    """

    minor: int
    size: int
    padded: int
    stored: bool = False

    def __post_init__(self) -> None:
        common = gcd(self.size, self.padded)
        lowest = {"minor": self.minor * common, "size": self.size // common, "padded": self.padded // common}
        for name, value in lowest.items():
            object.__setattr__(self, name, value)

    @property
    def end(self) -> int:
        """The elements of the dim from one of the span's repeats to the next."""
        return self.minor * self.size


Spans = tuple[Span, ...]
"""Of one dim (or factor), the most major first."""
Padding = tuple[Spans, ...]
"""Of each dim of a value."""


def no_padding(rank: int) -> Padding:
    return ((),) * rank


def padded_size(size: int, spans: Spans) -> int:
    """The size of a dim (or factor) of ``size`` with its padding."""
    for s in spans:
        size = size // s.size * s.padded
    return size


def padded_shape(shape: tuple[int, ...], padding: Padding) -> tuple[int, ...]:
    return tuple(padded_size(n, s) for n, s in zip(shape, padding, strict=True))


def is_tail(size: int, spans: Spans) -> bool:
    """Whether all padding of a dim stands at its end."""
    return not spans or (len(spans) == 1 and spans[0].end == size)


def joined(old: Spans, new: Span) -> Spans:
    """``old`` with one more; ``old`` itself if it has it, or padding that is in its way.

    What computation needs takes the place of the same padding of storage.
    """
    for s in old:
        if s.stored and s == replace(new, stored=True):
            return tuple(new if t == s else t for t in old)
        if s.minor % new.end and new.minor % s.end:
            return old
    return tuple(sorted((*old, new), key=lambda s: -s.minor))


def of_factors(dim: Dim, sizes: Mapping[str, int], spans: Spans) -> dict[str, Spans]:
    """A dim's spans dealt to its factors, in elements of the factor; what fits into none is left out."""
    found: dict[str, Spans] = {}
    minor = prod(sizes[f] for f in dim)
    for f in dim if minor else ():  # nothing is padded of what is empty
        end, minor = minor, minor // sizes[f]
        inside = [s for s in spans if s.minor % minor == 0 and end % s.end == 0]
        if inside:
            found[f] = tuple(replace(s, minor=s.minor // minor) for s in inside)
    return found


def of_dim(dim: Dim, sizes: Mapping[str, int], factors: Mapping[str, Spans]) -> Spans:
    """The other way round: a dim's spans where its factors are padded so."""
    found: list[Span] = []
    minor = prod(sizes[f] for f in dim)
    for f in dim if minor else ():
        minor //= sizes[f]
        found += (replace(s, minor=s.minor * minor) for s in factors.get(f, ()))
    return tuple(found)


def segments(size: int, spans: Spans) -> list[tuple[int, int, Span | None]]:
    """(true size, padded size, span) of the parts that a dim of ``size`` falls into, the most major first.

    The span is None for what lies between spans. The product of the sizes is the dim.
    """
    parts: list[tuple[int, int, Span | None]] = []
    end = size
    for s in spans:
        if end != s.end:
            parts.append((end // s.end, end // s.end, None))
        parts.append((s.size, s.padded, s))
        end = s.minor
    if end != 1 or not parts:
        parts.append((end, end, None))
    return parts
