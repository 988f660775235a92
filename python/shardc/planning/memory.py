"""What each rank of a plan holds: its state by role, what the step makes by kind, and the most at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from torch_mlir import ir

from shardc.backends.torch.description import describe_program
from shardc.backends.torch.memory.dry_run import Peak
from shardc.backends.torch.memory.kinds import ACTIVATIONS, COLLECTIVES, GRADIENTS, KINDS, TEMPORARIES, Alive
from shardc.compiler.memory import distinct_parts, step_peaks
from shardc.cost.allocator import UNKNOWN_SLACK, reserved_bytes
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.diagnostics.text import size_text
from shardc.runtime.check import STATE_ROLES

ROLE_WORDS = {"param": "parameters", "opt_state": "optimizer state", "buffer": "buffers", "input": "batch"}
KIND_WORDS = {
    GRADIENTS: "gradients",
    ACTIVATIONS: "activations, kept for backward",
    COLLECTIVES: "gathered, or on its way to other ranks",
    TEMPORARIES: "temporaries",
}


@dataclass(frozen=True)
class Argument:
    """Something that a step is given. ``size_bytes``: on one device."""

    role: str
    name: str
    size_bytes: int

    @property
    def weight(self) -> str:
        """The parameter that optimizer state is of; else its own name."""
        return self.name.rpartition("/")[0] if self.role == "opt_state" else self.name


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one device. ``given``: what a step is given, by role. ``peak``: the most at once, or why that
    is not known. ``arguments``: what it is given, one by one. ``host_bytes``: of it what is in the host's
    memory. ``reserved``: what the caching allocator takes, where its requests are not known one by one.
    """

    rank: int
    given: Mapping[str, int]
    peak: Peak | PeakUnknown
    arguments: Sequence[Argument] = ()
    host_bytes: int = 0
    reserved: int | None = None

    @property
    def state_bytes(self) -> int:
        return sum(size for role, size in self.given.items() if role in STATE_ROLES)

    @property
    def peak_bytes(self) -> int:
        """At least this much is needed where the peak is not known: what the step is given."""
        known = None if isinstance(self.peak, PeakUnknown) else self.peak.size_bytes
        return sum(self.given.values()) if known is None else known

    @property
    def largest_state_bytes(self) -> int:
        """The optimizer's state of one parameter, at most."""
        states: dict[str, int] = {}
        for argument in self.arguments:
            if argument.role == "opt_state":
                states[argument.weight] = states.get(argument.weight, 0) + argument.size_bytes
        return max(states.values(), default=0)

    @property
    def alive(self) -> Sequence[Alive]:
        """What the step itself holds at the peak; nothing where the peak is not known."""
        return () if isinstance(self.peak, PeakUnknown) else self.peak.alive

    @property
    def kinds(self) -> dict[str, int]:
        """Bytes of each of KINDS at the peak."""
        return {kind: sum(a.size_bytes for a in self.alive if a.kind == kind) for kind in KINDS}

    @cached_property
    def reserved_bytes(self) -> int:
        """What PyTorch's caching allocator takes from a GPU for the peak and all before it."""
        if self.reserved is not None:
            return self.reserved
        if isinstance(self.peak, PeakUnknown):
            return int(self.peak_bytes * (1 + UNKNOWN_SLACK))
        return reserved_bytes(self.peak.record.log.requests, self.peak.record.log.given)

    def rows(self) -> list[tuple[str, str]]:
        """What is alive at the peak, by kind."""
        given = [(ROLE_WORDS.get(role, role), size_text(size)) for role, size in self.given.items() if size]
        made = [(KIND_WORDS[kind], size_text(size)) for kind, size in self.kinds.items() if size]
        host = (
            [("optimizer state in the host's memory", size_text(self.host_bytes))] if self.host_bytes else []
        )
        return [*given, *made, *host]


def memory_of(module: ir.Module) -> Sequence[RankMemory]:
    """Of one rank of each program in a module of level 3 or 4: of a pipeline, each stage's first rank."""
    mesh, parts = distinct_parts(describe_program(module))
    found = []
    for number, peak in zip(sorted(parts), step_peaks(module), strict=True):
        rank, part = parts[number]
        arguments = [
            Argument(leaf.role, leaf.name, prod(leaf.local_shape(mesh)) * leaf.dtype.itemsize)
            for leaf in part.arguments
        ]
        given: dict[str, int] = {}
        for argument in arguments:
            given[argument.role] = given.get(argument.role, 0) + argument.size_bytes
        found.append(RankMemory(rank, given, peak, arguments))
    return found
