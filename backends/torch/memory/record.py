"""Record of all allocations in a program's run, to tell what is alive at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardc.backends.torch.memory.curve import Curve, Height, Log, Place, places_of
from shardc.backends.torch.memory.kinds import Alive, Block, alive_at_peak


@dataclass(frozen=True)
class Record:
    """Record of a run. ``program``: its lines. ``log``: allocations and frees. ``blocks``: allocations."""

    program: Sequence[str] = ()
    log: Log = field(default_factory=Log)
    blocks: Sequence[Block] = ()

    @cached_property
    def places(self) -> list[Place]:
        """Place of each line of the program."""
        return places_of(self.program)

    def living(self, made: int) -> list[Block]:
        """Return the blocks that are alive when the first ``made`` blocks have been made."""
        return [block for block in self.blocks[:made] if block.outlived >= made]

    def alive(self, made: int) -> tuple[Alive, ...]:
        """Return the program's own part of these, by kind and line."""
        return alive_at_peak(self.living(made), self.program, self.places)

    def curve(self) -> Curve:
        """The memory over time."""
        return self.log.curve(self.program)

    @cached_property
    def heights(self) -> list[Height]:
        """Memory at each tensor, in order."""
        return self.log.heights(self.program, self.places)
