"""All that a run of a program made: what is alive at any moment of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardc.backends.torch.memory.curve import Curve, Height, Log, Place, places_of
from shardc.backends.torch.memory.kinds import Alive, Block, alive_at_peak


@dataclass(frozen=True)
class Record:
    """``program``: its lines. ``log``: what was made and given up, in order. ``blocks``: what was made."""

    program: Sequence[str] = ()
    log: Log = field(default_factory=Log)
    blocks: Sequence[Block] = ()

    @cached_property
    def places(self) -> list[Place]:
        """Where each line of the program is from."""
        return places_of(self.program)

    def living(self, made: int) -> list[Block]:
        """What is alive when the first ``made`` blocks have been made."""
        return [block for block in self.blocks[:made] if block.outlived >= made]

    def alive(self, made: int) -> tuple[Alive, ...]:
        """Of that what the program itself made, by kind and line."""
        return alive_at_peak(self.living(made), self.program, self.places)

    def curve(self) -> Curve:
        """The memory over time."""
        return self.log.curve(self.program)

    @cached_property
    def heights(self) -> list[Height]:
        """What is alive as each tensor is made, in order."""
        return self.log.heights(self.program, self.places)
