"""Memory of each rank of a plan: arguments by role, tensors of the step by kind, and the peak."""

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
    """Argument of a step. ``size_bytes``: its size on one device."""

    role: str
    name: str
    size_bytes: int

    @property
    def weight(self) -> str:
        """Parameter that optimizer state belongs to; for other roles the argument's own name."""
        return self.name.rpartition("/")[0] if self.role == "opt_state" else self.name


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one device.

    ``given``: bytes of arguments by role. ``peak``: the peak, or the reason why it is unknown. ``arguments``:
    the single arguments. ``host_bytes``: bytes of arguments in host memory. ``reserved``: bytes that the
    caching allocator takes, if its single requests are not known.
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
        """Peak memory. If the peak is unknown, the arguments' bytes, which are a lower bound."""
        known = None if isinstance(self.peak, PeakUnknown) else self.peak.size_bytes
        return sum(self.given.values()) if known is None else known

    @property
    def largest_state_bytes(self) -> int:
        """Bytes of the largest optimizer state of any parameter."""
        states: dict[str, int] = {}
        for argument in self.arguments:
            if argument.role == "opt_state":
                states[argument.weight] = states.get(argument.weight, 0) + argument.size_bytes
        return max(states.values(), default=0)

    @property
    def alive(self) -> Sequence[Alive]:
        """Tensors of the step that are alive at the peak; empty if the peak is unknown."""
        return () if isinstance(self.peak, PeakUnknown) else self.peak.alive

    @property
    def kinds(self) -> dict[str, int]:
        """Bytes alive at the peak, for each of KINDS."""
        return {kind: sum(a.size_bytes for a in self.alive if a.kind == kind) for kind in KINDS}

    @cached_property
    def reserved_bytes(self) -> int:
        """Bytes that PyTorch's caching allocator reserves on a GPU up to the peak."""
        if self.reserved is not None:
            return self.reserved
        if isinstance(self.peak, PeakUnknown):
            return int(self.peak_bytes * (1 + UNKNOWN_SLACK))
        return reserved_bytes(self.peak.record.log.requests, self.peak.record.log.given)

    def rows(self) -> list[tuple[str, str]]:
        """Return rows (kind, size) of what is alive at the peak."""
        given = [(ROLE_WORDS.get(role, role), size_text(size)) for role, size in self.given.items() if size]
        made = [(KIND_WORDS[kind], size_text(size)) for kind, size in self.kinds.items() if size]
        host = (
            [("optimizer state in the host's memory", size_text(self.host_bytes))] if self.host_bytes else []
        )
        return [*given, *made, *host]


def memory_of(module: ir.Module) -> Sequence[RankMemory]:
    """Return the memory of one rank for each program of a level 3 or 4 module.

    In a pipeline these are the first ranks of the stages.
    """
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
