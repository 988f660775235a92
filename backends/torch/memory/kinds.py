"""What the tensors are for that a program holds at its peak: decided by where each is made and last read."""

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
"""Lines that make a parameter's gradient or add to it, by the names that programs give these."""
_SHARED = ("all_gather", "wait")
"""Lines whose results hold what other ranks have, and live for their readers alone."""


@dataclass(slots=True, eq=False)
class Block:
    """Memory that a program made at the line ``made`` and read at the line ``read`` last; lines from 1, 0 is
    outside of the program. It was the ``number``-th, and ``outlived`` so many had been made when it ended.
    """

    size_bytes: int
    made: int
    read: int = 0
    number: int = 0
    outlived: float = math.inf


@dataclass(frozen=True)
class Alive:
    """Bytes of one kind that one source line of the user's holds at the peak."""

    kind: str
    place: Place
    size_bytes: int


def alive_at_peak(
    blocks: Iterable[Block], program: Sequence[str], places: Sequence[Place]
) -> tuple[Alive, ...]:
    """What the program itself holds, the most first. ``places``: of the program's lines.

    ``gradients`` are of parameters: made in backward, whole or in part. ``activations`` are made in the
    forward, or again in backward, and read in backward. ``collectives`` is what is gathered, and what is on
    its way. ``temporaries`` are all others.
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
    """The collective that a line starts, ``wait`` where it waits for one, or nothing."""
    found = _COLLECTIVE.search(program[line - 1]) if line else None
    name = (found["name"] or found["wait"]) if found else ""
    return "" if name == "store" else name
