"""A rank program of level 3 in the form that ``pipe-cut`` reads: a loop over micro-batches, and ops around
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch_mlir import ir

from shardc.diagnostics.passes.pipeline import NoMicroBatches, SeveralLoops
from shardc.dialects.aten.call import is_constant
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.regions.loop_values import TUPLES, LoopValues, loop_values
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import edge_key, phase_of
from shardc.passes.manager.copy_ops import reads
from shardc.passes.manager.program import find_function
from shardc.passes.pipeline.stages.originals import originals

Roots = frozenset[str]
"""Names of the parameters that a value depends on."""


@dataclass
class StepProgram:
    """A step, with the loop that contains forward and backward, or only forward if the step does not train.

    ``outside`` are the ops around the loop, in order. ``roots`` maps each value outside, and each capture
    inside, to the parameters that it depends on.
    """

    function: ir.Operation
    block: ir.Block
    loop: ir.Operation
    values: LoopValues
    outside: list[ir.Operation] = field(default_factory=list)
    roots: dict[ir.Value, Roots] = field(default_factory=dict)
    keys: dict[ir.Value, tuple[str, str]] = field(default_factory=dict)
    """Role and name of each argument."""
    trains: bool = True

    @property
    def body(self) -> ir.Block:
        return self.loop.regions[0].blocks[0]

    @cached_property
    def carried(self) -> Sequence[ir.Value]:
        """The body's arguments that hold running sums."""
        return list(self.body.arguments)[: len(self.values.inits)]

    @property
    def stack_dims(self) -> Sequence[int]:
        """The dim along which each of the loop's rows is stacked."""
        return [dim.value for dim in self.loop.attributes["stack_dims"]]

    @cached_property
    def captures(self) -> dict[ir.Value, ir.Value]:
        """Argument of the body -> the captured value outside."""
        inside = list(self.body.arguments)[len(self.values.inits) :]
        return dict(zip(inside, self.values.captures, strict=True))

    @cached_property
    def weights(self) -> dict[ir.Value, Roots]:
        """Value of the body that is computed from parameters alone, such as a gathered one -> their names."""
        found = {value: names for value, names in self.roots.items() if names and value in self.captures}
        for op in body_ops(self.body):
            read = list(reads(op))
            if read and all(value in found for value in read):
                names: Roots = frozenset().union(*(found[value] for value in read))
                found.update(dict.fromkeys(op.results, names))
        return found

    @cached_property
    def originals(self) -> dict[ir.Value, ir.Value]:
        """Value of the body that backward computes again -> the first one."""
        return originals([view.operation for view in self.body.operations], self.captures)


def read_step(module: ir.Module) -> StepProgram:
    """Read a step. Raises NoMicroBatches, and SeveralLoops if several loops read parameters."""
    function = find_function(module)
    assert function is not None
    block = function.regions[0].blocks[0]
    ops = [o.operation for o in block.operations][:-1]
    loops, is_training = [op for op in ops if op.name == "dist.loop"], trains(module)
    main = next((op for op in reversed(loops) if _has_backward(op) or not is_training), None)
    if main is None:
        raise NoMicroBatches()
    program = StepProgram(function, block, main, loop_values(main), trains=is_training)
    program.keys = dict(zip(block.arguments, keys_of(function, "arg_attrs"), strict=True))
    _find_roots(program, ops)
    for other in loops:
        if other != main and (_has_backward(other) or any(program.roots[r] for r in other.results)):
            raise SeveralLoops(where=source_line(_heaviest(other).location))
    program.outside = [op for op in ops if op != main and not is_constant(op)]
    for inside, outside in program.captures.items():
        program.roots[inside] = program.roots[outside]
    return program


def trains(module: ir.Module) -> bool:
    """Return whether a step has backward, or returns new parameters."""
    function = find_function(module)
    assert function is not None
    ops = [o.operation for o in function.regions[0].blocks[0].operations]
    if any(op.name == "dist.loop" and _has_backward(op) for op in ops):
        return True
    return any(role == "param" for role, _ in keys_of(function, "res_attrs"))


def made_from(values: Iterable[ir.Value], goes_on: Callable[[ir.Value], bool]) -> Iterator[ir.Value]:
    """Yield ``values`` and, transitively, the operands of those for which ``goes_on`` holds, each once."""
    todo, seen = list(values), set[ir.Value]()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        yield value
        if goes_on(value):
            todo.extend(reads(value.owner.operation))


def tensor(value: ir.Value) -> TensorType | None:
    """Return the type of a tensor; None for an integer or a tuple."""
    return read_type(value.type)


def size_bytes(value: ir.Value) -> int:
    found = tensor(value)
    return found.size_bytes if found is not None else 8


def body_ops(block: ir.Block) -> list[ir.Operation]:
    """Return the ops of a loop's body without constants, tuples and the yield."""
    ops = [o.operation for o in block.operations][:-1]
    return [op for op in ops if not is_constant(op) and op.name not in TUPLES]


def _has_backward(loop: ir.Operation) -> bool:
    return any(phase_of(op) == "backward" for op in body_ops(loop.regions[0].blocks[0]))


def _heaviest(loop: ir.Operation) -> ir.Operation:
    """Return the op that errors about a loop name: the one with the largest operands."""
    ops = body_ops(loop.regions[0].blocks[0])
    return max(ops, key=lambda op: sum(map(size_bytes, reads(op))))


def keys_of(function: ir.Operation, which: str) -> list[tuple[str, str]]:
    """Return role and name of each argument (``arg_attrs``) or result (``res_attrs``) of a function."""
    return [edge_key(function, which, position) for position in range(len(function.attributes[which]))]


def _find_roots(program: StepProgram, ops: list[ir.Operation]) -> None:
    roots = program.roots
    for value, (role, name) in program.keys.items():
        roots[value] = frozenset((name,)) if role == "param" else frozenset()
    for op in ops:
        found: Roots = frozenset().union(*(roots[v] for v in reads(op)))
        for result in op.results:
            roots[result] = found
