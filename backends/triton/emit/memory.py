"""Parameters of a module's functions: inputs, outputs, and the workspace that its launch allocates."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.backends.body.graph import Graph, Value
from shardc.backends.triton.emit.text import TYPES, Names
from shardc.dialects.kern.size import AnySize
from shardc.dialects.kern.types import ELEMENTS

DTYPES = {element: str(dtype) for dtype, element in ELEMENTS.items()} | {
    "i1": "torch.bool",
    "i8": "torch.int8",
}


@dataclass(frozen=True)
class Pointer:
    """Parameter ``name`` for memory of MLIR's type ``element``. ``argument``: its name in ``launch``."""

    name: str
    argument: str
    element: str

    @property
    def type(self) -> str:
        return f"*{TYPES[self.element]}"


@dataclass(frozen=True)
class Work:
    """Workspace of a launch: ``count`` elements; if ``programs`` is given, for each program of that part."""

    pointer: Pointer
    count: AnySize
    programs: int | None = None


@dataclass(eq=False)
class Memory:
    """Memory of values. ``of``: value -> its memory. ``outputs``: number of a result -> its memory."""

    inputs: list[Pointer]
    new_outputs: list[Pointer]
    sizes: list[str] = field(default_factory=list)
    outputs: dict[int, Pointer] = field(default_factory=dict)
    of: dict[Value, Pointer] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    names: Names = field(default_factory=Names)

    def work(self, name: str, count: AnySize, element: ir.Type | str, programs: int | None = None) -> Pointer:
        made = pointer(self.names.new(name), element)
        self.works.append(Work(made, count, programs))
        return made

    @property
    def pointers(self) -> list[Pointer]:
        """All pointers, in the order of parameters."""
        return [*self.inputs, *self.new_outputs, *(w.pointer for w in self.works)]


def pointer(name: str, element: ir.Type | str) -> Pointer:
    """Return the parameter ``name_ptr`` of the argument ``name``."""
    return Pointer(f"{name}_ptr", name, str(element))


def memory_of(graph: Graph, inputs: list[str], outputs: list[str]) -> Memory:
    """Return the parameters of a graph, with the names of the lists if possible."""
    names = Names()
    given = {a.position: a for a in reversed(graph.arguments)}
    read = [pointer(names.new(name), given[n].element) for n, name in enumerate(inputs)]
    results = enumerate(graph.results)
    new = {n: pointer(names.new(outputs[n]), r.element) for n, r in results if n not in graph.in_place}
    overwritten = {number: read[at] for number, at in graph.in_place.items()}
    sizes = [names.new(f"n{s.number}") for s in graph.symbols]
    of: dict[Value, Pointer] = {a: read[a.position] for a in graph.arguments}
    return Memory(read, list(new.values()), sizes, overwritten | new, of, names=names)
