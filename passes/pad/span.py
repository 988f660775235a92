"""Padded parts of a dim, in a form that survives splitting and merging of dims.

A dim of 45 with 3 sequences of 15 tokens, padded to 4 sequences, has the span ``Span(15, 3, 4)``: 3 blocks of
15 elements, padded to 4 blocks. Padding is always at the end of its span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

from shardc.dialects.rules.rule import Dim


@dataclass(frozen=True)
class Span:
    """``size`` blocks of ``minor`` elements each, padded to ``padded`` blocks; in lowest terms.

    ``stored``: only state between steps, and the optimizer's work on it, has this padding (ZeRO).
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
        """The number of the dim's elements from one repetition of the span to the next."""
        return self.minor * self.size


Spans = tuple[Span, ...]
"""The spans of a dim or factor, the most major first."""
Padding = tuple[Spans, ...]
"""The spans of each dim of a value."""


def no_padding(rank: int) -> Padding:
    return ((),) * rank


def padded_size(size: int, spans: Spans) -> int:
    """Return the padded size of a dim or factor of ``size``."""
    for s in spans:
        size = size // s.size * s.padded
    return size


def padded_shape(shape: tuple[int, ...], padding: Padding) -> tuple[int, ...]:
    return tuple(padded_size(n, s) for n, s in zip(shape, padding, strict=True))


def is_tail(size: int, spans: Spans) -> bool:
    """Return whether all padding of a dim is at its end."""
    return not spans or (len(spans) == 1 and spans[0].end == size)


def joined(old: Spans, new: Span) -> Spans:
    """Return ``old`` with ``new`` added; ``old`` itself if it contains ``new``, or a span that conflicts with
    it.

    Padding for computation replaces the same padding for storage.
    """
    for s in old:
        if s.stored and s == replace(new, stored=True):
            return tuple(new if t == s else t for t in old)
        if s.minor % new.end and new.minor % s.end:
            return old
    return tuple(sorted((*old, new), key=lambda s: -s.minor))


def of_factors(dim: Dim, sizes: Mapping[str, int], spans: Spans) -> dict[str, Spans]:
    """Return a dim's spans by factor, in elements of the factor; spans that fit no factor are left out."""
    found: dict[str, Spans] = {}
    minor = prod(sizes[f] for f in dim)
    for f in dim if minor else ():  # an empty dim has no padding
        end, minor = minor, minor // sizes[f]
        inside = [s for s in spans if s.minor % minor == 0 and end % s.end == 0]
        if inside:
            found[f] = tuple(replace(s, minor=s.minor // minor) for s in inside)
    return found


def of_dim(dim: Dim, sizes: Mapping[str, int], factors: Mapping[str, Spans]) -> Spans:
    """Return a dim's spans from those of its factors: the inverse of :func:`of_factors`."""
    found: list[Span] = []
    minor = prod(sizes[f] for f in dim)
    for f in dim if minor else ():
        minor //= sizes[f]
        found += (replace(s, minor=s.minor * minor) for s in factors.get(f, ()))
    return tuple(found)


def segments(size: int, spans: Spans) -> list[tuple[int, int, Span | None]]:
    """Factor a dim of ``size`` into parts (true size, padded size, span), the most major first.

    The span is None for parts between spans. The product of the sizes is the dim's size.
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
