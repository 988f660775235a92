"""The programs of a pipeline's ranks, side by side in one process: each runs until it waits for a message.

Messages are delivered in the order in which they were sent, as where the programs run; tags only prove that
a receive got what it was meant to get.

A rank of the pipeline stands for all devices that share its place on the pipeline's axis: they run in
lock-step, as the ranks of a step without a pipeline do.
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
"""Role and name -> a tensor for each device of one rank of the pipeline."""
Messages = dict[tuple[int, int], deque[tuple[str, list[Values]]]]
"""(sender, receiver) -> tag and values of what was sent and is not received yet, in order."""
Recall = Callable[[ir.Operation, int, list[Values], Callable[[], list[Values]]], list[Values]]
"""(stage, micro-batch, inputs, what computes its results) -> the results, computed or remembered."""


@dataclass(frozen=True)
class PipelineProgram:
    """What a pipeline's ranks run, and each one's ``mesh``: the module's without the pipeline's axis."""

    module: ir.Module
    mesh: Mesh
    functions: list[ir.Operation]
    arguments: list[list[Port]]
    results: list[list[Port]]
    slices: int = 1
    """Into how many a sequence is cut; each counts as a micro-batch of the schedule."""


def read_pipeline(module: ir.Module) -> PipelineProgram | None:
    """None for a module that is no pipeline."""
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
    """The results of each rank by role and name; ``blocks[r]`` are the arguments of rank ``r``.

    ``observe`` is told of a named op in a stage once for each micro-batch, but not of one that ``recall`` has
    the results of. Raises Deadlock if all ranks that are not done wait, WrongMessage if a receive gets what
    it is not for, or nobody gets a message, and what :func:`shardc.backends.eager.interpreter.run` raises.
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
    """One rank's program, ``at`` which instruction of its ``body`` it is, and the ``values`` that it has."""

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
        """Runs until the end or a message that is not there; whether anything ran."""
        start = self.at
        while not self.done and self._run(self.body[self.at]):
            for value in self.body[self.at].dying:
                self.values.pop(value, None)
            self.at += 1
        return self.at > start

    def waits(self) -> str:
        """What the rank waits for, in words."""
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
        """The ``message`` that has come, which must be what the receive ``op`` says."""
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
