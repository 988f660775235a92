"""Kinds of tensors alive at a program's peak, decided by where each is made and last read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardc.backends.torch.memory.curve import ARGUMENTS, Place

GRADIENTS, ACTIVATIONS, COLLECTIVES, TEMPORARIES = "gradients", "activations", "collectives", "temporaries"
KINDS = (GRADIENTS, ACTIVATIONS, COLLECTIVES, TEMPORARIES)
FORWARD = ("forward", "recompute")
_COLLECTIVE = re.compile(r"\brank\.(?P<name>\w+)\(|\.(?P<wait>wait)\(")
_GRADIENT = re.compile(r"\s*(grad|carried)_\w+ = ")
"""Pattern of lines that compute a parameter's gradient or add to it, by the names in programs."""
_SHARED = ("all_gather", "wait")
"""Collectives whose results are gathered from other ranks, and live only for their readers."""


@dataclass(slots=True, eq=False)
class Block:
    """Memory block of a program.

    ``made``: line that allocated it. ``read``: line that last read it. Lines count from 1; 0 is outside of
    the program. ``number``: its number in order of allocation. ``outlived``: number of blocks made when it
    was freed.
    """

    size_bytes: int
    made: int
    read: int = 0
    number: int = 0
    outlived: float = math.inf


@dataclass(frozen=True)
class Alive:
    """Bytes of one kind alive at the peak, from one source line of the user."""

    kind: str
    place: Place
    size_bytes: int


def alive_at_peak(
    blocks: Iterable[Block], program: Sequence[str], places: Sequence[Place]
) -> tuple[Alive, ...]:
    """Return the program's own memory by kind and place, the largest first.

    ``places``: places of the program's lines. Kinds are: ``gradients`` of parameters, whole or partial;
    ``activations``, computed in forward or recomputed, and read in backward; ``collectives``, gathered or in
    flight; and ``temporaries``, all others.
    """
    found: dict[tuple[str, Place], int] = {}
    for block in blocks:
        if block.made != ARGUMENTS:
            key = _kind(block, program, places), places[block.made]
            found[key] = found.get(key, 0) + block.size_bytes
    return tuple(
        Alive(kind, place, size) for (kind, place), size in sorted(found.items(), key=lambda item: -item[1])
    )


def _kind(block: Block, program: Sequence[str], places: Sequence[Place]) -> str:
    made, read = places[block.made].phase, places[block.read].phase
    if made == "backward" and (read == "optimizer" or _is_gradient(block, program)):
        return GRADIENTS
    if _collective(program, block.made) in _SHARED or (
        made not in FORWARD and _collective(program, block.read)
    ):
        return COLLECTIVES
    if (made in FORWARD and read == "backward") or (made == "forward" and read == "recompute"):
        return ACTIVATIONS
    return TEMPORARIES


def _is_gradient(block: Block, program: Sequence[str]) -> bool:
    return any(line and _GRADIENT.match(program[line - 1]) for line in (block.made, block.read))


def _collective(program: Sequence[str], line: int) -> str:
    """Return the collective that a line starts, ``wait`` if it waits for one, or an empty text."""
    found = _COLLECTIVE.search(program[line - 1]) if line else None
    name = (found["name"] or found["wait"]) if found else ""
    return "" if name == "store" else name
