"""What each rank of a plan holds: its state by role, and the most that its tensors take at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.backends.torch.description import describe_program
from shardc.backends.torch.memory.dry_run import Peak
from shardc.compiler.memory import step_peaks
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.diagnostics.text import size_text
from shardc.runtime.check import STATE_ROLES
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.program import part_of

ROLE_WORDS = {"param": "parameters", "opt_state": "optimizer state", "buffer": "buffers", "input": "batch"}


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one device. ``given``: what a step is given, by role. ``peak``: the most at once, or why that
    is not known. ``host_bytes``: of it what is in the host's memory. ``largest_state_bytes``: the optimizer's
    state of one parameter, at most.
    """

    rank: int
    given: Mapping[str, int]
    peak: Peak | PeakUnknown
    host_bytes: int = 0
    largest_state_bytes: int = 0

    @property
    def state_bytes(self) -> int:
        return sum(size for role, size in self.given.items() if role in STATE_ROLES)

    @property
    def peak_bytes(self) -> int:
        """At least this much is needed where the peak is not known: what the step is given."""
        known = None if isinstance(self.peak, PeakUnknown) else self.peak.size_bytes
        return sum(self.given.values()) if known is None else known

    @property
    def made_bytes(self) -> int:
        """Of the peak, what the step itself makes: activations, gradients, what collectives gather."""
        return self.peak_bytes - sum(self.given.values())

    def rows(self) -> list[tuple[str, str]]:
        """What is alive at the peak, by kind."""
        given = [(ROLE_WORDS.get(role, role), size_text(size)) for role, size in self.given.items() if size]
        host = (
            [("optimizer state in the host's memory", size_text(self.host_bytes))] if self.host_bytes else []
        )
        return [*given, ("activations and gradients at the peak", size_text(self.made_bytes)), *host]


def memory_of(module: ir.Module) -> Sequence[RankMemory]:
    """Of one rank of each program in a module of level 3 or 4: of a pipeline, each stage's first rank."""
    described = describe_program(module)
    mesh, leaves = Mesh.read(described["mesh"]), [Leaf.read(entry) for entry in described["arguments"]]
    parts = {
        part.number: (rank, part)
        for rank in reversed(range(mesh.world_size))
        for part in [part_of(described["pipeline"], leaves, mesh, rank)]
    }
    found = []
    for number, peak in zip(sorted(parts), step_peaks(module), strict=True):
        rank, part = parts[number]
        given: dict[str, int] = {}
        states: dict[str, int] = {}
        for leaf in part.arguments:
            size = prod(leaf.local_shape(mesh)) * leaf.dtype.itemsize
            given[leaf.role] = given.get(leaf.role, 0) + size
            if leaf.role == "opt_state":
                parameter = leaf.name.rpartition("/")[0]
                states[parameter] = states.get(parameter, 0) + size
        largest = max(states.values(), default=0)
        found.append(RankMemory(rank, given, peak, largest_state_bytes=largest))
    return found
