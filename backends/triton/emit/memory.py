"""The parameters of a module's functions: inputs, outputs, and the workspace that its launch makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.backends.body.graph import Graph, Value
from shardc.backends.triton.emit.text import TYPES, Names
from shardc.dialects.kern.size import AnySize

DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i1": "bool",
    "i8": "bool",
    "i32": "int32",
    "i64": "int64",
}


@dataclass(frozen=True)
class Pointer:
    """A parameter ``name`` for memory of MLIR's ``element``; ``argument`` is its name in ``launch``."""

    name: str
    argument: str
    element: str

    @property
    def type(self) -> str:
        return f"*{TYPES[self.element]}"


@dataclass(frozen=True)
class Work:
    """Memory of one launch: ``count`` elements, ``programs`` times where each program has a part."""

    pointer: Pointer
    count: AnySize
    programs: str | None = None


@dataclass(eq=False)
class Memory:
    """Where values lie. ``of``: every value that lies in memory; ``outputs``: by number of the result."""

    names: Names
    inputs: list[Pointer]
    outputs: dict[int, Pointer]
    new_outputs: list[Pointer]
    sizes: list[str]
    of: dict[Value, Pointer] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)

    def work(self, name: str, count: AnySize, element: ir.Type, programs: str | None = None) -> Pointer:
        made = self._pointer(self.names, name, str(element))
        self.works.append(Work(made, count, programs))
        return made

    @property
    def pointers(self) -> list[Pointer]:
        """All of them, in the order of parameters."""
        return [*self.inputs, *self.new_outputs, *(w.pointer for w in self.works)]

    @staticmethod
    def _pointer(names: Names, wanted: str, element: str) -> Pointer:
        name = names.new(wanted)
        return Pointer(f"{name}_ptr", name, element)


def memory_of(graph: Graph, inputs: list[str], outputs: list[str]) -> Memory:
    """The parameters of a graph, called as the lists say where that is possible."""
    names = Names()
    given = {a.position: a for a in reversed(graph.arguments)}
    read = [Memory._pointer(names, name, str(given[n].element)) for n, name in enumerate(inputs)]
    made: dict[int, Pointer] = {number: read[at] for number, at in graph.in_place.items()}
    new = [n for n in range(len(graph.results)) if n not in graph.in_place]
    for number in new:
        made[number] = Memory._pointer(names, outputs[number], str(graph.results[number].element))
    sizes = [names.new(f"n{s.number}") for s in graph.symbols]
    of = {a: read[a.position] for a in graph.arguments}
    return Memory(names, read, made, [made[n] for n in new], sizes, of)
