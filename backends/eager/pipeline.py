"""Execution of a pipeline's rank programs in one process. Each rank runs until it waits for a message.

Messages arrive in the order in which they were sent, as in real runs. Tags only check that a receive got the
right message.

A rank of the pipeline stands for all devices at its position on the pipeline's axis. They run in lock-step,
like the ranks of a step without a pipeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.interpreter import (
    Environment,
    Machine,
    Observe,
    check_arguments,
    computing,
    detached,
    widened,
)
from shardc.backends.eager.program import Instruction, read_block
from shardc.backends.eager.proof.signature import Key, Port, read_arguments, read_results
from shardc.backends.eager.ranks import Ranks, Values
from shardc.diagnostics.oracle import Deadlock, WrongMessage
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.location import source_line
from shardc.dialects.pipe.action import parse_action
from shardc.dialects.pipe.action_op import find_stage
from shardc.dialects.pipe.rank_function import pipeline_axis, rank_functions
from shardc.dialects.pipe.schedule_op import find_schedule
from shardc.runtime.kernels.loaders import Kernels as Library

Blocks = dict[Key, list[Tensor]]
"""(Role, name) -> a tensor for each device of one pipeline rank."""
Messages = dict[tuple[int, int], deque[tuple[str, list[Values]]]]
"""(sender, receiver) -> tags and values of messages that were sent and not received yet, in order."""
Recall = Callable[[ir.Operation, int, list[Values], Callable[[], list[Values]]], list[Values]]
"""Function (stage, micro-batch, inputs, function that computes results) -> results, computed or cached."""


@dataclass(frozen=True)
class PipelineProgram:
    """Programs of a pipeline's ranks. ``mesh``: the mesh of each rank, without the pipeline's axis."""

    module: ir.Module
    mesh: Mesh
    functions: list[ir.Operation]
    arguments: list[list[Port]]
    results: list[list[Port]]
    slices: int = 1
    """Number of slices of a sequence. Each slice counts as a micro-batch of the schedule."""


def read_pipeline(module: ir.Module) -> PipelineProgram | None:
    """Read the programs of a module; return None if it is no pipeline."""
    functions, axis = rank_functions(module), pipeline_axis(module)
    whole = read_mesh(module)
    if not functions or whole is None:
        return None
    mesh = Mesh(tuple(a for a in whole.axes if a.name != axis))
    codec = ShardingCodec(module.context, mesh)
    arguments = [read_arguments(f, codec) for f in functions]
    schedule = find_schedule(module)
    assert schedule is not None
    results, slices = [read_results(f, codec) for f in functions], schedule.attributes["slices"].value
    return PipelineProgram(module, mesh, functions, arguments, results, slices)


def run_pipeline(
    program: PipelineProgram,
    blocks: Sequence[Mapping[Key, list[Tensor]]],
    *,
    widen: bool = False,
    observe: Observe | None = None,
    library: Library | None = None,
    recall: Recall | None = None,
) -> list[Blocks]:
    """Run the programs; return the results of each rank by role and name.

    ``blocks[r]``: the arguments of rank ``r``. ``observe``: called for a named op in a stage once for each
    micro-batch, unless ``recall`` has cached the stage's results. Raises Deadlock if all unfinished ranks
    wait, WrongMessage if a receive gets another message or a message is not received, and what
    :func:`shardc.backends.eager.interpreter.run` raises.
    """
    messages: Messages = {}
    world, codec = program.mesh.world_size, ShardingCodec(program.module.context, program.mesh)
    machine = Machine(Ranks(program.mesh, codec, world), widen, observe, library)
    ranks = []
    for number, ports in enumerate(program.arguments):
        inputs = [[widened(t) if widen else t for t in blocks[number][port.key]] for port in ports]
        check_arguments(ports, inputs, world, world, widen)
        block = program.functions[number].regions[0].blocks[0]
        values = dict(zip(block.arguments, inputs, strict=True))
        body = read_block(block, machine.reader)
        ranks.append(_Rank(program, number, body, values, messages, machine, recall))
    with computing(widen):
        while any(not rank.done for rank in ranks):
            if not any([rank.advance() for rank in ranks]):
                raise Deadlock(waits="; ".join(rank.waits() for rank in ranks if not rank.done))
    for (sender, receiver), (tag, _) in ((line, left[0]) for line, left in messages.items() if left):
        raise WrongMessage(receiver=receiver, sender=sender, sent=tag, wanted="the end of its program")
    given = [values for rank in blocks for values in rank.values()]
    returned = ([rank.values[v] for v in rank.body[-1].op.operands] for rank in ranks)
    return [
        {port.key: values for port, values in zip(ports, detached(results, given), strict=True)}
        for ports, results in zip(program.results, returned, strict=True)
    ]


@dataclass
class _Rank:
    """Execution state of one rank: its program, its position ``at`` in its ``body``, and its ``values``."""

    program: PipelineProgram
    number: int
    body: list[Instruction]
    values: Environment
    messages: Messages
    machine: Machine
    recall: Recall | None
    at: int = 0

    @property
    def done(self) -> bool:
        return self.at == len(self.body) - 1

    def advance(self) -> bool:
        """Run until the end, or until a message is missing. Return True if anything ran."""
        start = self.at
        while not self.done and self._run(self.body[self.at]):
            for value in self.body[self.at].dying:
                self.values.pop(value, None)
            self.at += 1
        return self.at > start

    def waits(self) -> str:
        """Return text on the message for which the rank waits."""
        attributes = self.body[self.at].op.attributes
        return f"rank {self.number} for {attributes['tag'].value} of rank {attributes['source'].value}"

    def _run(self, instruction: Instruction) -> bool:
        op = instruction.op
        if instruction.name == "pipe.send":
            line = self.messages.setdefault((self.number, op.attributes["to"].value), deque())
            line.append((op.attributes["tag"].value, self.values[op.operands[0]]))
        elif instruction.name == "pipe.receive":
            line = self.messages.get((op.attributes["source"].value, self.number))
            if not line:
                return False
            self.values[op.results[0]] = self._received(op, *line.popleft())
        elif instruction.name == "pipe.action":
            made = self._run_action(op)
            self.values.update((result, made) for result in op.results)
        else:
            self.machine.run_instruction(instruction, self.values)
        return True

    def _received(self, op: ir.Operation, tag: str, message: list[Values]) -> list[Values]:
        """Return the ``message`` that arrived, after checking it against the receive ``op``."""
        sender, wanted = op.attributes["source"].value, op.attributes["tag"].value
        types = [read_type(type_) for type_ in element_types(op.results[0].type) or []]
        shapes = [list(type_.shape) for type_ in types if type_ is not None]
        came = [list(values[0].shape) for values in message]
        if tag != wanted or came != shapes:
            sent, wanted = f"{tag} of shapes {came}", f"{wanted} of shapes {shapes}"
            where = source_line(op.location)
            raise WrongMessage(receiver=self.number, sender=sender, sent=sent, wanted=wanted, where=where)
        return message

    def _run_action(self, op: ir.Operation) -> list[Values]:
        action = parse_action(op.attributes["action"].value)
        stage = find_stage(op, op.attributes["stage"].value)
        (time,) = [a for a in self.program.mesh.axes if a.kind == "time"]
        number = (action.micro_batch or 0) // self.program.slices
        assert stage is not None
        inputs = self.values[op.operands[0]] if len(op.operands) else []

        def compute() -> list[Values]:
            with self.machine.ranks.at(self.program.mesh.whole(time.name), number):
                (made,) = self.machine.run_block(stage.regions[0].blocks[0], inputs) or [[]]
            return made

        return compute() if self.recall is None else self.recall(stage, number, inputs, compute)
