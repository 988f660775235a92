"""What all blocks of a program share, and what the lines of one block are made with."""

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
"""How a value is laid out; None for contiguous."""
FREED_BYTES = 1024
"""Values smaller than this are left to the end of the function: a `del` for each would drown the program."""
UNNAMED = "-"
"""What MLIR calls a module that was parsed from a string: no file of the user's."""


@dataclass
class Messages:
    """What the text of messages needs to know. ``axes``: the constant that names the pipeline's axis;
    ``slices``: into how many a sequence is cut; ``stages``: symbol of a ``pipe.stage`` -> its function;
    ``arrived``: what :func:`~shardc.backends.torch.memory.arrived.arrivals` gives.
    """

    axes: str
    stages: dict[str, str] = field(default_factory=dict)
    slices: int = 1
    arrived: Mapping[ir.Value, int] = field(default_factory=dict)


@dataclass
class Program:
    """What all blocks of one program share."""

    names: Names
    functions: Functions
    dist: DistText
    codec: ShardingCodec
    kernels: Kernels
    reader: CallReader = field(default_factory=CallReader)
    sources: dict[ir.Attribute, str | None] = field(default_factory=dict)
    """Location -> the user's source line, ``model.py:12``: each distinct one is read once."""
    lines: list[str] = field(default_factory=list)
    values: dict[ir.Value, str] = field(default_factory=dict)
    place: tuple[str | None, str | None] = (None, None)
    strides: Mapping[ir.Value, Strides] = field(default_factory=dict)
    """How values lie that calls make, where that matters."""
    messages: Messages | None = None
    """Those between the ranks of a pipeline."""

    def source(self, op: ir.Operation) -> str | None:
        """The user's file name and line of an op; None if it has none."""
        attribute = op.location.attr
        if attribute not in self.sources:
            self.sources[attribute] = _source(place_of(op.location))
        return self.sources[attribute]

    @staticmethod
    def new(module: ir.Module, mesh: Mesh, names: Names, pooled: bool) -> Program:
        """An empty program. ``pooled``: large results of matrix products are in the runtime's pool."""
        codec = ShardingCodec(module.context, mesh)
        dist = DistText(AxesTable(mesh, names), codec)
        return Program(names, Functions(names, pooled), dist, codec, Kernels(names))


class Block:
    """One block of a program: its steps in order, and what of its values shares memory."""

    def __init__(self, program: Program, schedule: Schedule, aliases: Aliases, indent: str) -> None:
        self.program, self.schedule, self.aliases, self.indent = program, schedule, aliases, indent
        self.dying = schedule.dying()

    def line(self, text: str) -> None:
        self.program.lines.append(f"{self.indent}{text}")

    def name(self, value: ir.Value) -> str:
        """Its variable; of a constant that a kernel takes, its number."""
        values = self.program.values
        if value not in values:
            values[value] = str(ir.IntegerAttr(value.owner.attributes["value"]).value)
        return values[value]

    def free(self, values: list[ir.Value]) -> None:
        """A `del` for those of ``values`` that are worth one."""
        names = [self.name(v) for v in values if self._is_worth_freeing(v)]
        if names:
            self.line(f"del {', '.join(names)}")

    def name_results(self, step: Step) -> list[str]:
        """Variables for what a step makes, ``_`` for what nobody reads."""
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
    """``mm`` for ``torch.aten.mm``, ``add`` for ``aten.add.Tensor``, ``add_gelu`` for ``add_gelu_3``."""
    if step.name == KERNEL:
        return kernel_name(step.op).rpartition("_")[0]
    name = step.call.spec.target if step.call is not None else step.name
    return name.split(".")[1].strip("_")
