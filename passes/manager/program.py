"""A step function in the form that passes work on: numbered values, and calls with their rules.

Reading MLIR from Python takes microseconds an access, so a pass reads the function once and works on
integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.diagnostics.base import remark
from shardc.diagnostics.dialects.levels import ManualRegionNotYet, UnknownOperation, UnreadableOperation
from shardc.dialects.aten.call import Call, CallReader, OpCall, is_constant
from shardc.dialects.aten.schema import UnknownOperator
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.location import source_line
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.stage import StageOp
from shardc.dialects.rules.rule import (
    Dim,
    ImpossibleCall,
    Rule,
    RuleFunction,
    find_rule,
    find_rule_in_loops,
    replicated_rule,
    why_no_rule,
)
from shardc.passes.manager.attributes import PER_MICRO_BATCH, edge_attribute, edge_key

STEP = "step"
ABSENT = TensorType((), torch.bool)
"""Type of a result that ``output_mask`` leaves out (``!torch.none``)."""


@dataclass(slots=True)
class Node:
    """A call, or a ``dist`` op whose result has the type of its operand."""

    op: ir.Operation
    spec: OpCall
    rule: Rule
    operands: list[int]
    results: list[int]
    known: bool = True
    """True if the call has a rule; if not, all its tensors are replicated."""

    @property
    def values(self) -> tuple[int, ...]:
        """The operands, then the results."""
        return (*self.operands, *self.results)


@dataclass
class Program:
    """The step function of a module."""

    module: ir.Module
    function: ir.Operation
    block: ir.Block
    terminator: ir.Operation
    """The ``func.return``."""
    values: list[ir.Value] = field(default_factory=list)
    types: list[TensorType] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)
    """For each value, the numbers of the nodes that read it."""
    producer: list[int] = field(default_factory=list)
    """For each value, the number of the node that produces it; -1 for arguments."""
    arguments: list[int] = field(default_factory=list)
    returns: list[int] = field(default_factory=list)
    index: dict[ir.Value, int] = field(default_factory=dict)

    def attribute(self, argument: int, name: str) -> ir.Attribute | None:
        """Return an attribute of an argument, or None."""
        return edge_attribute(self.function, "arg_attrs", argument, name)

    def result_attribute(self, result: int, name: str) -> ir.Attribute | None:
        return edge_attribute(self.function, "res_attrs", result, name)

    def argument_key(self, argument: int) -> tuple[str, str]:
        """Return (role, name) of an argument; empty strings if the IR has none."""
        return edge_key(self.function, "arg_attrs", argument)

    def result_key(self, result: int) -> tuple[str, str]:
        """Return (role, name) of a result; empty strings if the IR has none."""
        return edge_key(self.function, "res_attrs", result)

    def argument_keys(self) -> list[tuple[str, str]]:
        return [self.argument_key(position) for position in range(len(self.arguments))]

    def annotated(self, argument: int, codec: ShardingCodec) -> Sharding:
        """Return the sharding of an argument's annotation; replicated if it has none."""
        attribute = self.attribute(argument, "dist.sharding")
        rank = len(self.types[self.arguments[argument]].shape)
        return Sharding.replicated(rank) if attribute is None else codec.read(attribute)

    def state_of_results(self) -> list[int | None]:
        """Return, for each result, the argument with the same role and name, that is, the state that it
        replaces.
        """
        arguments = dict(zip(self.argument_keys(), self.arguments, strict=True)) | {("", ""): None}
        return [arguments.get(edge_key(self.function, "res_attrs", i)) for i in range(len(self.returns))]


def find_function(module: ir.Module) -> ir.Operation | None:
    """Return the ``func.func`` called ``step``, else the first one, else None."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    named = [f for f in functions if f.attributes["sym_name"].value == STEP]
    return (named or functions or [None])[0]


def micro_batches_apart(module: ir.Module) -> int:
    """Return how many micro-batches the step runs as separate programs; 0 if it runs none so."""
    function = find_function(module)
    found = None if function is None else function.attributes.get(PER_MICRO_BATCH)
    return 0 if found is None else ir.IntegerAttr(found).value


def program_functions(module: ir.Module) -> list[ir.Operation]:
    """Return the ops whose bodies run: the step, or a pipeline's stages and then the function of each
    rank.
    """
    ranks = rank_functions(module)
    if ranks:
        ops = (op.operation for op in module.body.operations)
        return [*(op for op in ops if op.name == StageOp.OPERATION_NAME), *ranks]
    function = find_function(module)
    return [] if function is None else [function]


def program_blocks(module: ir.Module) -> list[ir.Block]:
    """Return the blocks of a program's functions and of the loops in them."""
    bodies = (function.regions[0].blocks[0] for function in program_functions(module))
    return [block for body in bodies for block in step_blocks(body)]


def step_blocks(block: ir.Block) -> Iterator[ir.Block]:
    """Yield the blocks of the loops in a block, then the block."""
    for op in block.operations:
        if op.operation.name == "dist.loop":
            yield from step_blocks(op.operation.regions[0].blocks[0])
    yield block


def read_program(module: ir.Module) -> Program | None:
    """Read the step function of ``module``; None if it has no function."""
    function = find_function(module)
    if function is None:
        return None
    block = function.regions[0].blocks[0]
    *ops, terminator = [op.operation for op in block.operations]
    program = Program(module, function, block, terminator)
    reader, find = CallReader(), _finder(module)
    for argument in block.arguments:
        program.arguments.append(_add_value(program, argument, reader.tensor_type(argument.type), -1))
    for op in ops:
        if not is_constant(op):
            _add_node(program, reader, op, find)
    program.returns = [program.index[v] for v in terminator.operands]
    return program


def _add_value(program: Program, value: ir.Value, type_: TensorType | None, producer: int) -> int:
    number = program.index[value] = len(program.values)
    program.values.append(value)
    program.types.append(type_ or ABSENT)
    program.users.append([])
    program.producer.append(producer)
    return number


def _finder(module: ir.Module) -> RuleFunction:
    """Return the function that finds the rules of a module's calls."""
    mesh = read_mesh(module)
    timed = mesh is not None and any(axis.kind == "time" for axis in mesh.axes)
    return find_rule_in_loops if timed else find_rule


def _add_node(program: Program, reader: CallReader, op: ir.Operation, find: RuleFunction) -> None:
    call = _read_call(op, reader)
    dist = call.spec.target.startswith("dist.")
    try:
        rule = same_rule(call.spec.tensors[0]) if dist else find(call.spec)
    except ImpossibleCall as error:
        raise UnreadableOperation(op=op.name, problem=str(error), where=source_line(op.location)) from None
    number = len(program.nodes)
    operands = [program.index[v] for v in call.operands]
    results = [_add_value(program, r, t, number) for r, t in zip(op.results, call.spec.results, strict=True)]
    node = Node(op, call.spec, rule or replicated_rule(call.spec), operands, results, rule is not None)
    program.nodes.append(node)
    for operand in dict.fromkeys(operands):
        program.users[operand].append(number)
    if rule is None:
        size = f"({sum(t.size_bytes for t in call.spec.results if t):,} bytes of results)"
        why = f"{call.spec.target} {why_no_rule(call.spec)}, so every device computes all of it {size}"
        remark("ReplicatedOp", why, source_line(op.location))


def _read_call(op: ir.Operation, reader: CallReader) -> Call:
    name = op.name
    if name == "dist.manual" or name.startswith("torch.prim.Tuple"):
        raise ManualRegionNotYet(where=source_line(op.location))
    if name.startswith("dist."):
        return _read_dist(op)
    try:
        call = reader.read(op)
        for type_ in (*call.spec.tensors, *call.spec.results):
            if type_ is not None and not type_.is_static:
                raise TypeError(f"{type_} has no static shape")
        return call
    except UnknownOperator as error:
        raise UnknownOperation(op=error.args[0], where=source_line(op.location)) from None
    except TypeError as error:
        raise UnreadableOperation(op=name, problem=str(error), where=source_line(op.location)) from None


def _read_dist(op: ir.Operation) -> Call:
    """Read a ``dist.constraint`` or ``dist.reshard`` as a call that returns its operand."""
    type_ = read_type(op.operands[0].type)
    assert type_ is not None
    return Call(op, OpCall(op.name, (type_,), (type_,)), [op.operands[0]])


def same_rule(type_: TensorType) -> Rule:
    """Return the rule of the identity: operand and result share all factors."""
    dims: tuple[Dim, ...] = tuple((f"i{d}",) if size > 1 else () for d, size in enumerate(type_.shape))
    sizes = {f"i{d}": size for d, size in enumerate(type_.shape) if size > 1}
    return Rule((dims,), (dims,), sizes, linear=(frozenset({0}),))


def carried_values(program: Program) -> list[tuple[int, int]]:
    """Return (argument, result) pairs of the state that the step updates."""
    pairs = zip(program.state_of_results(), program.returns, strict=True)
    return [(old, new) for old, new in pairs if old is not None and old != new]


def new_function(
    program: Program,
    inputs: Sequence[ir.Type],
    outputs: Sequence[ir.Type],
    changed: Mapping[str, ir.Attribute] | None = None,
) -> ir.Block:
    """Insert an empty function before the step, with the step's attributes and ``changed``; return its
    body.
    """
    old = program.function
    type_ = ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs, old.context), old.context)
    attributes = {**dict(old.attributes.items()), **(changed or {}), "function_type": type_}
    place = ir.InsertionPoint(old)
    function = ir.Operation.create("func.func", [], [], attributes, regions=1, loc=old.location, ip=place)
    locations = [a.location for a in program.block.arguments]
    return ir.Block.create_at_start(function.regions[0], inputs, locations)


def copy_module(module: ir.Module) -> ir.Module:
    """Return a copy of a module in the same context, with locations."""
    with module.context, ir.Location.unknown():
        made = ir.Module.create(module.operation.location)
        for name, attribute in module.operation.attributes.items():
            made.operation.attributes[name] = attribute
        for op in module.body:
            op.operation.clone(ip=ir.InsertionPoint(made.body))
        return made
