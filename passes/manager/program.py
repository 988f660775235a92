"""A step function as the passes see it: values by number, calls with their rules, who uses what.

Reading MLIR through Python costs microseconds an access; a pass reads the function once into this and works
on integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.diagnostics.base import remark
from shardc.diagnostics.levels import ManualRegionNotYet, UnknownOperation, UnreadableOperation
from shardc.dialects.aten.call import Call, CallReader, OpCall, is_constant
from shardc.dialects.aten.schema import UnknownOperator
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.location import source_line
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.stage import StageOp
from shardc.dialects.rules.rule import Dim, Rule, find_rule, replicated_rule, why_no_rule

STEP = "step"
ABSENT = TensorType((), torch.bool)
"""Stands for the type of a result that a call was asked not to make (``!torch.none``)."""


@dataclass(slots=True)
class Node:
    """One call, or one ``dist`` op that takes a value to a value of the same type."""

    op: ir.Operation
    spec: OpCall
    rule: Rule
    operands: list[int]
    results: list[int]
    known: bool = True
    """Whether a rule was found; if not, everything about the call is replicated."""


@dataclass
class Program:
    """The step function of a module."""

    module: ir.Module
    function: ir.Operation
    block: ir.Block
    values: list[ir.Value] = field(default_factory=list)
    types: list[TensorType] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)
    """For each value the numbers of the nodes that read it."""
    producer: list[int] = field(default_factory=list)
    """For each value the number of the node that makes it; -1 for arguments."""
    arguments: list[int] = field(default_factory=list)
    returns: list[int] = field(default_factory=list)
    terminator: ir.Operation | None = None
    index: dict[ir.Value, int] = field(default_factory=dict)

    def attribute(self, argument: int, name: str) -> ir.Attribute | None:
        """An argument's attribute."""
        return _named(self.function, "arg_attrs", argument, name)

    def result_attribute(self, result: int, name: str) -> ir.Attribute | None:
        return _named(self.function, "res_attrs", result, name)

    def argument_key(self, argument: int) -> tuple[str, str]:
        """(role, name) of an argument; empty where the IR does not say."""
        return _key(self.attribute(argument, "dist.role"), self.attribute(argument, "dist.name"))

    def result_key(self, result: int) -> tuple[str, str]:
        return _key(self.result_attribute(result, "dist.role"), self.result_attribute(result, "dist.name"))


def _named(function: ir.Operation, which: str, position: int, name: str) -> ir.Attribute | None:
    if which not in function.attributes:
        return None
    attributes = ir.DictAttr(function.attributes[which][position])
    return attributes[name] if name in attributes else None


def _key(role: ir.Attribute | None, name: ir.Attribute | None) -> tuple[str, str]:
    return (role.value if role else "", name.value if name else "")


def find_function(module: ir.Module) -> ir.Operation | None:
    """The ``func.func`` called ``step``, else the first one."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    named = [f for f in functions if f.attributes["sym_name"].value == STEP]
    return (named or functions or [None])[0]


def program_functions(module: ir.Module) -> list[ir.Operation]:
    """The ops whose bodies are what runs: the step; of a pipeline its stages, then the function
    of each rank.
    """
    ranks = rank_functions(module)
    if ranks:
        ops = (op.operation for op in module.body.operations)
        return [*(op for op in ops if op.name == StageOp.OPERATION_NAME), *ranks]
    function = find_function(module)
    return [] if function is None else [function]


def read_program(module: ir.Module) -> Program | None:
    """The step function of ``module``; None if it has no function."""
    function = find_function(module)
    if function is None:
        return None
    block = function.regions[0].blocks[0]
    program = Program(module, function, block)
    reader = CallReader()
    for argument in block.arguments:
        program.arguments.append(_add_value(program, argument, reader.tensor_type(argument.type), -1))
    for op in block.operations:
        op = op.operation
        if op.name == "func.return":
            program.terminator = op
            program.returns = [program.index[v] for v in op.operands]
        elif not is_constant(op):
            _add_node(program, reader, op)
    return program


def _add_value(program: Program, value: ir.Value, type_: TensorType | None, producer: int) -> int:
    number = len(program.values)
    program.values.append(value)
    program.types.append(type_ or ABSENT)
    program.users.append([])
    program.producer.append(producer)
    program.index[value] = number
    return number


def _add_node(program: Program, reader: CallReader, op: ir.Operation) -> None:
    call = _read_call(op, reader)
    rule, known = _rule(op, call.spec)
    number = len(program.nodes)
    operands = [program.index[v] for v in call.operands]
    results = [_add_value(program, r, t, number) for r, t in zip(op.results, call.spec.results, strict=True)]
    program.nodes.append(Node(op, call.spec, rule, operands, results, known))
    for operand in operands:
        if not program.users[operand] or program.users[operand][-1] != number:
            program.users[operand].append(number)
    if not known:
        size = sum(t.size_bytes for t in call.spec.results if t)
        remark(
            "ReplicatedOp",
            f"{call.spec.target} {why_no_rule(call.spec)}, so every device computes all of it "
            f"({size:,} bytes of results)",
            source_line(op.location),
        )


def _read_call(op: ir.Operation, reader: CallReader) -> Call:
    name = op.name
    if name == "dist.manual" or name.startswith("torch.prim.Tuple"):
        raise ManualRegionNotYet(where=source_line(op.location))
    if name.startswith("dist."):
        return _read_dist(op)
    try:
        call = reader.read(op)
    except UnknownOperator as error:
        raise UnknownOperation(op=error.args[0], where=source_line(op.location)) from None
    except TypeError as error:
        raise UnreadableOperation(op=name, problem=str(error), where=source_line(op.location)) from None
    dynamic = next(
        (t for t in (*call.spec.tensors, *call.spec.results) if t is not None and not t.is_static), None
    )
    if dynamic is not None:
        raise UnreadableOperation(
            op=name, problem=f"{dynamic} has no static shape", where=source_line(op.location)
        )
    return call


def _read_dist(op: ir.Operation) -> Call:
    """``dist.constraint`` and ``dist.reshard``: a value in, the same value out."""
    type_ = read_type(op.operands[0].type)
    assert type_ is not None
    return Call(op, OpCall(op.name, (type_,), (type_,)), [op.operands[0]])


def _rule(op: ir.Operation, spec: OpCall) -> tuple[Rule, bool]:
    if op.name.startswith("dist."):
        return same_rule(spec.results[0]), True
    rule = find_rule(spec)
    return (rule, True) if rule is not None else (replicated_rule(spec), False)


def same_rule(type_: TensorType) -> Rule:
    """The rule of the identity: every dim of the operand is the same dim of the result."""
    dims: tuple[Dim, ...] = tuple((f"i{d}",) if size > 1 else () for d, size in enumerate(type_.shape))
    sizes = {f"i{d}": size for d, size in enumerate(type_.shape) if size > 1}
    return Rule((dims,), (dims,), sizes, linear=(frozenset({0}),))


def carried_values(program: Program) -> list[tuple[int, int]]:
    """(argument, result) pairs of the state that a step takes and gives back: the same role and name."""
    arguments = {program.argument_key(i): value for i, value in enumerate(program.arguments)}
    pairs = []
    for position, value in enumerate(program.returns):
        key = program.result_key(position)
        if key in arguments and key != ("", "") and arguments[key] != value:
            pairs.append((arguments[key], value))
    return pairs


def copy_module(module: ir.Module) -> ir.Module:
    """A module of its own in the same context, locations included."""
    with module.context, ir.Location.unknown():
        made = ir.Module.create(module.operation.location)
        for name in module.operation.attributes:
            made.operation.attributes[name] = module.operation.attributes[name]
        for op in module.body:
            op.operation.clone(ip=ir.InsertionPoint(made.body))
        return made
