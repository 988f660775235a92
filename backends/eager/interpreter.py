"""Interpreter of the oracle: runs a step op by op with ATen on the CPU, all ranks in lock-step in one
process.

It is written to be obviously right, not fast. A value is the list of its tensors, one for each rank, and a
collective is arithmetic on that list. Levels 1 and 2 have global values and run on lists of one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager import collectives
from shardc.backends.eager.aten import WIDE, AtenCall, check_types, executed_type, prepare
from shardc.backends.eager.dist_ops import HANDLERS
from shardc.backends.eager.kern.linalg import run_kernel
from shardc.backends.eager.program import STEP, Instruction, blamed_on, find_step, read_block
from shardc.backends.eager.proof.signature import Port, read_arguments
from shardc.backends.eager.ranks import Ranks, Values, once_per
from shardc.diagnostics.oracle import BadArguments, NoStep
from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.kern.extern import extern_call
from shardc.dialects.kern.kernel import checks, in_place, kernel_name, result_types
from shardc.passes.fuse.bodies.flat import FLAT, element_count
from shardc.passes.manager.attributes import observed
from shardc.runtime.kernels.loaders import Kernels as Library

Observe = Callable[[str, list[Tensor], ir.Operation], None]
"""Callback for each op with a ``dist.name``: (name without ``#index``, the tensors by rank, the op)."""

Environment = dict[ir.Value, Values]

_INT_OPERATORS = {
    "torch.aten.add.int": operator.add,
    "torch.aten.sub.int": operator.sub,
    "torch.aten.mul.int": operator.mul,
    "torch.aten.floordiv.int": operator.floordiv,
    "torch.aten.remainder.int": operator.mod,
    "torch.aten.neg.int": operator.neg,
    "torch.prim.min.int": min,
    "torch.prim.max.int": max,
}


def run(
    module: ir.Module,
    arguments: Sequence[Sequence[Tensor]],
    *,
    widen: bool = False,
    observe: Observe | None = None,
    library: Library | None = None,
) -> list[list[Tensor]]:
    """Execute ``@step`` of a module of level 1, 2, 3 or 4; return each result's tensors by rank.

    ``arguments``: for each argument, one tensor at levels 1 and 2, and world_size tensors at level 3. They do
    not change, and no result shares their memory. ``widen``: run in f64, including dtype arguments and
    constants, so that programs that are equal in exact arithmetic agree to about 1e-12. ``observe``: called
    for an op in a loop once for each iteration. ``library``: compiled kernels to run. Default: kernels are
    interpreted by their bodies.

    Raises NoStep, BadArguments, and ExecutionFailed for an op that fails or has a result of another type.
    """
    step = find_step(module)
    if step is None:
        raise NoStep(function=STEP)
    mesh = read_mesh(module) or Mesh(())
    codec = ShardingCodec(module.context, mesh)
    count = max((len(values) for values in arguments), default=1)
    inputs = [[widened(t) if widen else t for t in values] for values in arguments]
    check_arguments(read_arguments(step, codec), inputs, count, mesh.world_size, widen)
    machine = Machine(Ranks(mesh, codec, count), widen, observe, library)
    with computing(widen):
        results = machine.run_block(step.regions[0].blocks[0], inputs)
    return detached(results, arguments)


@contextmanager
def computing(widen: bool) -> Iterator[None]:
    """Context without autograd. With ``widen``, factory ops without a dtype use f64."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if widen else default)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(default)


class Machine:
    """Interpreter of blocks. Each block is read once, however often a loop runs it."""

    def __init__(self, ranks: Ranks, widen: bool, observe: Observe | None, library: Library | None) -> None:
        self.ranks, self._widen, self._observe, self._library = ranks, widen, observe, library
        self.reader = CallReader()
        self._blocks: dict[ir.Block, list[Instruction]] = {}
        self._calls: dict[ir.Operation, AtenCall] = {}

    def run_block(self, block: ir.Block, inputs: Sequence[Values]) -> list[Values]:
        """Run a block on ``inputs``; return the operands of its terminator."""
        if block not in self._blocks:
            self._blocks[block] = read_block(block, self.reader)
        *body, terminator = self._blocks[block]
        values: Environment = dict(zip(block.arguments, inputs, strict=True))
        for instruction in body:
            self.run_instruction(instruction, values)
            for value in instruction.dying:
                values.pop(value, None)
        return [self.value_of(v, values) for v in terminator.op.operands]

    def run_instruction(self, instruction: Instruction, values: Environment) -> None:
        """Run one op of a block, and add its results to ``values``."""
        op = instruction.op
        with blamed_on(op):
            made = self._run(instruction, values)
        values.update(zip(op.results, made, strict=True))
        if self._observe is not None:
            for name, index in observed(op):
                self._observe(name, self.ranks.as_run(values[op.results[index]]), op)

    def _run(self, instruction: Instruction, values: Environment) -> list[Values]:
        op = instruction.op
        if instruction.call is None:
            return self._run_other(instruction, [self.value_of(v, values) for v in op.operands])
        if op not in self._calls:
            self._calls[op] = prepare(instruction.call, self._widen)
        return self._on_ranks(self._calls[op], [values[v] for v in instruction.operands])

    def _on_ranks(
        self, compute: Callable[[list[Any]], Sequence[Any]], operands: list[Values]
    ) -> list[Values]:
        """Run ``compute`` on each rank's operands, once for ranks with the same operands."""
        keys = [
            tuple(v[r] if type(v[r]) is int else id(v[r]) for v in operands) for r in range(self.ranks.count)
        ]
        made = once_per(keys, lambda rank: compute([v[rank] for v in operands]))
        return [list(by_rank) for by_rank in zip(*made, strict=True)]

    def _run_other(self, instruction: Instruction, operands: list[Values]) -> list[Values]:
        name, op = instruction.name, instruction.op
        if name in HANDLERS:
            return [HANDLERS[name](self.ranks, op, operands)]
        if name in _INT_OPERATORS:
            return [[_INT_OPERATORS[name](*terms) for terms in zip(*operands, strict=True)]]
        if name == "torch.prim.TupleConstruct":
            return [operands]
        if name == "torch.prim.TupleUnpack":
            return operands[0]
        if name == "dist.loop":
            return self._run_loop(op, operands)
        if name == "dist.manual":
            return self._run_manual(op, operands)
        if name == "kern.kernel":
            return [self._on_ranks(self._kernel(op), operands[0] if operands else [])]
        if name == "kern.extern":
            call = prepare(extern_call(op), self._widen)
            return [self._on_ranks(call, operands[0] if operands else [])]
        raise NotImplementedError("the oracle does not know this op")

    def _kernel(self, op: ir.Operation) -> Callable[[list[Tensor]], Sequence[Tensor]]:
        if self._library is None:
            return partial(run_kernel, op, widen=self._widen)
        return _compiled(self._library, op)

    def _run_loop(self, op: ir.Operation, operands: list[Values]) -> list[Values]:
        (axis,) = self.ranks.codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))
        dims = [ir.IntegerAttr(d).value for d in op.attributes["stack_dims"]]
        body = op.regions[0].blocks[0]
        carried, captured = _groups(op, operands)
        stacks: list[list[Values]] = [[] for _ in dims]
        for iteration in range(axis.size):
            with self.ranks.at(axis, iteration):
                following, stacked = self._run_body(body, [*carried, *captured])
            runs = self.ranks.runs(axis, iteration)
            carried = [_where(runs, new, old) for new, old in zip(following, carried, strict=True)]
            for stack, values in zip(stacks, stacked, strict=True):
                stack.append(_where(runs, values, list(map(torch.zeros_like, values))))
        return [group for group in (carried, list(map(_stacked, stacks, dims))) if group]

    def _run_manual(self, op: ir.Operation, operands: list[Values]) -> list[Values]:
        """Run the body on every rank.

        Global operands are split before it, and its results joined after it.
        """
        ranks, axes = self.ranks, self.ranks.axes(op)
        cuts = [_on_axes(ranks.codec.read(s), axes) for s in op.attributes["in_shardings"]]
        joins = [_on_axes(ranks.codec.read(s), axes) for s in op.attributes["out_shardings"]]
        ins = operands[0] if operands else []
        blocks = [collectives.scatter(v[0], s, ranks.mesh) for v, s in zip(ins, cuts, strict=True)]
        self.ranks = replace(ranks, count=ranks.mesh.world_size)
        made, _ = self._run_body(op.regions[0].blocks[0], blocks)
        self.ranks = ranks
        if not len(op.results):
            return []
        types = map(read_type, element_types(op.results[0].type) or [])
        parts = [(b, s, t.shape) for b, s, t in zip(made, joins, types, strict=True) if t]
        wholes = [collectives.gather(blocks, s, ranks.mesh, shape) for blocks, s, shape in parts]
        return [[[whole] * ranks.count for whole in wholes]]

    def _run_body(self, body: ir.Block, inputs: Sequence[Values]) -> list[list[Values]]:
        """Run a region; return the values and the stacked values that it yields."""
        return _groups(body.operations[-1].operation, self.run_block(body, inputs))

    def value_of(self, value: ir.Value, values: Environment) -> Values:
        """Return an operand: a value of the block, or a constant."""
        found = values.get(value)
        if found is not None:
            return found
        return [ir.IntegerAttr(value.owner.attributes["value"]).value] * self.ranks.count


def _compiled(library: Library, op: ir.Operation) -> Callable[[list[Tensor]], Sequence[Tensor]]:
    """Return a compiled kernel as a function that changes no operand, even if results overwrite operands."""
    places = in_place(op)
    outputs = [places.get(n, (t.shape, t.dtype)) for n, t in enumerate(result_types(op))]
    size = element_count(op) if FLAT in op.attributes else None
    call = library.kernel(kernel_name(op), outputs, size, checks(op))
    taken = frozenset(places.values())
    return lambda tensors: call(*[t.clone() if n in taken else t for n, t in enumerate(tensors)])


def _on_axes(sharding: Sharding, axes: Axes) -> Sharding:
    return collectives.restricted(sharding, lambda axis: any(axis.overlaps(a) for a in axes))


def _groups(op: ir.Operation, tuples: list[Values]) -> list[list[Values]]:
    """Return the elements of each group of operands: those of a tuple, or none for an empty group."""
    rest = iter(tuples)
    return [next(rest) if size else [] for size in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]


def _where(runs: list[bool], new: Values, old: Values) -> Values:
    """Return ``new`` on the ranks that run an iteration, and ``old`` on the others."""
    return new if all(runs) else [n if here else o for here, n, o in zip(runs, new, old, strict=True)]


def _stacked(iterations: list[Values], dim: int) -> Values:
    """Concatenate one result of a loop from its values by iteration and rank."""
    by_rank = list(zip(*iterations, strict=True))
    return once_per([tuple(map(id, parts)) for parts in by_rank], lambda rank: torch.cat(by_rank[rank], dim))


def widened(tensor: Tensor) -> Tensor:
    return tensor.to(WIDE.get(tensor.dtype, tensor.dtype))


def check_arguments(
    ports: Sequence[Port], arguments: Sequence[Sequence[Tensor]], count: int, world: int, widen: bool
) -> None:
    if len(ports) != len(arguments):
        problem = f"{len(ports)} are needed, but {len(arguments)} were given"
        raise BadArguments(argument="the arguments", problem=problem)
    for port, values in zip(ports, arguments, strict=True):
        if len(values) != count or count not in (1, world):
            problem = f"tensors for {len(values)} ranks, not for 1 or all {world}"
            raise BadArguments(argument=str(port), problem=problem)
        for rank, tensor in enumerate(values):
            try:
                check_types([tensor], [executed_type(port.type, widen)])
            except ValueError as error:
                raise BadArguments(argument=str(port), problem=f"on rank {rank} {error}") from None


def detached(results: list[Values], arguments: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """Return the results, copied if they share memory with an argument, so that callers may write to both."""
    held = {t.untyped_storage().data_ptr() for values in arguments for t in values}
    copy = lambda t: t.clone() if t.untyped_storage().data_ptr() in held else t  # noqa: E731
    return [[copy(t) for t in values] for values in results]
