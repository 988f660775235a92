"""Shared state of a program's blocks, and the base class that writes the lines of one block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from torch_mlir import ir

from shardc.backends.torch.axes import AxesTable
from shardc.backends.torch.collectives import DistText
from shardc.backends.torch.functions import Functions
from shardc.backends.torch.kernels import KERNEL, Kernels
from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.schedule import Schedule
from shardc.backends.torch.names import Names
from shardc.backends.torch.step import Step
from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import Order
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.kern.kernel import kernel_name
from shardc.dialects.location import Place, place_of
from shardc.passes.manager.attributes import observed

Strides = Sequence[int] | Order | None
"""Strides of a value; None for contiguous."""
FREED_BYTES = 1024
"""Size from which on a value gets a `del`. Smaller ones live to the end of the function, for readability."""
UNNAMED = "-"
"""MLIR's file name for a module that was parsed from a string, which is no file of the user."""


@dataclass
class Messages:
    """Facts about a pipeline for the text of its messages.

    ``axes``: name of the constant with the pipeline's axis. ``slices``: number of slices of a sequence.
    ``stages``: symbol of a ``pipe.stage`` -> its function. ``arrived``: result of
    :func:`~shardc.backends.torch.memory.arrived.arrivals`. ``handed``: result of
    :func:`~shardc.backends.torch.handed.handed`. ``sent``: tag of a message with evicted activations -> the
    variable that waits until it is sent.
    """

    axes: str
    stages: dict[str, str] = field(default_factory=dict)
    slices: int = 1
    arrived: Mapping[ir.Value, int] = field(default_factory=dict)
    handed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)


@dataclass
class Program:
    """State that all blocks of one program share."""

    names: Names
    functions: Functions
    dist: DistText
    codec: ShardingCodec
    kernels: Kernels
    reader: CallReader = field(default_factory=CallReader)
    sources: dict[ir.Attribute, str | None] = field(default_factory=dict)
    """Location -> the user's source line, such as ``model.py:12``: a cache."""
    lines: list[str] = field(default_factory=list)
    values: dict[ir.Value, str] = field(default_factory=dict)
    place: tuple[str | None, str | None] = (None, None)
    strides: Mapping[ir.Value, Strides] = field(default_factory=dict)
    """Required strides of calls' results, if they matter."""
    messages: Messages | None = None
    """Messages between the ranks of a pipeline."""

    def source(self, op: ir.Operation) -> str | None:
        """Return the user's file name and line of an op; None if it has none."""
        attribute = op.location.attr
        if attribute not in self.sources:
            self.sources[attribute] = _source(place_of(op.location))
        return self.sources[attribute]

    @staticmethod
    def new(module: ir.Module, mesh: Mesh, names: Names, pooled: bool) -> Program:
        """Create an empty program. ``pooled``: large matmul results are in the runtime's pool."""
        codec = ShardingCodec(module.context, mesh)
        dist = DistText(AxesTable(mesh, names), codec)
        return Program(names, Functions(names, pooled), dist, codec, Kernels(names))


class Block:
    """Block of a program: its steps in order, and which of its values share memory."""

    def __init__(self, program: Program, schedule: Schedule, aliases: Aliases, indent: str) -> None:
        self.program, self.schedule, self.aliases, self.indent = program, schedule, aliases, indent
        self.dying, self.position = schedule.dying(), 0

    def line(self, text: str) -> None:
        self.program.lines.append(f"{self.indent}{text}")

    def name(self, value: ir.Value) -> str:
        """Return a value's variable, or the number of a constant that a kernel takes."""
        values = self.program.values
        if value not in values:
            values[value] = str(ir.IntegerAttr(value.owner.attributes["value"]).value)
        return values[value]

    def free(self, values: list[ir.Value]) -> None:
        """Write a `del` for the large ones of ``values``."""
        names = [self.name(v) for v in values if self._is_worth_freeing(v)]
        if names:
            self.line(f"del {', '.join(names)}")

    def free_early(self, values: list[ir.Value]) -> None:
        """Free those of ``values`` that the present step, which is yet to be written, reads last."""
        dying = self.dying.get(self.position, [])
        self.free([value for value in dying if value in values])
        self.dying[self.position] = [value for value in dying if value not in values]

    def name_results(self, step: Step) -> list[str]:
        """Return variables for a step's results, with ``_`` for unused ones."""
        values, names = self.program.values, self.program.names
        named = observed(step.results[0].owner if step.name.startswith("kern.") else step.op)
        given = {number: name.replace(":", "_") for name, number in reversed(named)}
        for number, value in enumerate(step.results):
            if value in values or value not in self.schedule.first:
                continue
            wanted = given.get(number)
            values[value] = names.exact(wanted) if wanted else names.numbered(_base_name(step))
        return ["_" if v not in self.schedule.first else values[v] for v in step.results]

    def _is_worth_freeing(self, value: ir.Value) -> bool:
        size_bytes = self.schedule.size_bytes(value)
        return size_bytes >= FREED_BYTES or (size_bytes > 0 and len(self.aliases.group(value).members) > 1)


def _source(place: Place | None) -> str | None:
    name = UNNAMED if place is None else PurePath(place.file).name
    if place is None or name == UNNAMED:
        return None
    return f"{name}:{place.line}" if place.line else name or None


def _base_name(step: Step) -> str:
    """Shorten ``torch.aten.mm`` to ``mm``, ``aten.add.Tensor`` to ``add``, ``add_gelu_3`` to ``add_gelu``."""
    if step.name == KERNEL:
        return kernel_name(step.op).rpartition("_")[0]
    name = step.call.spec.target if step.call is not None else step.name
    return name.split(".")[1].strip("_")
