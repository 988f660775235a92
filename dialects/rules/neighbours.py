"""What local calls of neighbouring ranks trade: shifts, halos, and what is added back to a halo's owner.

A halo is the part of the neighbouring blocks that a rank's windows reach into. Beyond the outer edge it holds
zeros, which nobody sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardc.dialects.rules.rule import Local


def shift(local: Local, value: Any, factor: str, by: int) -> Any:
    """``value`` of the rank ``by`` places before this one over the factor, cyclically."""
    ways = local.ways(factor)
    if by % ways == 0:
        return value
    return local.exchange(value, factor, tuple((place - by) % ways for place in range(ways)))


def shift_in(local: Local, value: Any, factor: str, by: int) -> Any:
    """``value`` of the rank ``by`` places before this one over the factor; zeros where there is none."""
    ways = local.ways(factor)
    sources = ((place - by) if 0 <= place - by < ways else -1 for place in range(ways))
    return local.exchange(value, factor, tuple(sources))


def part(local: Local, x: Any, dim: int, start: int, end: int) -> Any:
    """Elements ``start`` to ``end`` of a dim."""
    return local.emit("aten.slice.Tensor", x, dim, start, end, 1)


def joined(local: Local, parts: list[Any], dim: int) -> Any:
    return parts[0] if len(parts) == 1 else local.emit("aten.cat", tuple(parts), dim)


def hops(reach: int, size: int) -> Iterator[tuple[int, int]]:
    """(how many blocks away, how many elements of it) for a reach beyond the edge of blocks of ``size``."""
    for hop in range(1, -(-reach // size) + 1):
        yield hop, min(size, reach - (hop - 1) * size)


def rolled(local: Local, x: Any, dim: int, factor: str, by: int) -> Any:
    """This rank's block of the whole tensor rolled by ``by`` along a dim that is the cut factor alone."""
    size = local.size(factor)
    blocks, rest = divmod(by, size)
    own = shift(local, part(local, x, dim, 0, size - rest) if rest else x, factor, blocks)
    if not rest:
        return own
    return joined(local, [shift(local, part(local, x, dim, size - rest, size), factor, blocks + 1), own], dim)
