"""The programs of a pipeline's ranks, side by side in one process: each runs until it waits for a message.

A rank of the pipeline stands for all devices that share its place on the pipeline's axis: they run in
lock-step, as the ranks of a step without a pipeline do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.backends.eager.dist_ops import Values
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
from shardc.backends.eager.proof.signature import Port, read_arguments, read_results
from shardc.backends.eager.ranks import Ranks
from shardc.backends.eager.recall import Recall
from shardc.diagnostics.oracle import Deadlock
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.pipe.action import parse_action
from shardc.dialects.pipe.action_op import find_stage
from shardc.dialects.pipe.rank_function import pipeline_axis, rank_functions
from shardc.dialects.pipe.schedule_op import find_schedule
from shardc.runtime.kernels.loaders import Kernels as Library

Key = tuple[str, str]
Blocks = dict[Key, list[torch.Tensor]]
"""Role and name -> a tensor for each device of one rank of the pipeline."""
Messages = dict[tuple[int, int, str], list[Values]]
"""(sender, receiver, tag) -> what was sent."""


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
    blocks: Sequence[Mapping[Key, list[torch.Tensor]]],
    *,
    widen: bool = False,
    observe: Observe | None = None,
    library: Library | None = None,
    recall: Recall | None = None,
) -> list[Blocks]:
    """The results of each rank by role and name; ``blocks[r]`` are the arguments of rank ``r``.

    ``observe`` is told of a named op in a stage once for each micro-batch, but not of one that ``recall`` has
    the results of. Raises Deadlock if all ranks that are not done wait, and what
    :func:`shardc.backends.eager.interpreter.run` raises.
    """
    messages: Messages = {}
    ranks = []
    for number, ports in enumerate(program.arguments):
        inputs = [[widened(t) if widen else t for t in blocks[number][port.key]] for port in ports]
        check_arguments(ports, inputs, program.mesh.world_size, program.mesh.world_size, widen)
        ranks.append(_Rank(program, number, inputs, messages, widen, observe, library, recall))
    with computing(widen):
        while any(not rank.done for rank in ranks):
            if not any([rank.advance() for rank in ranks]):
                raise Deadlock(waits="; ".join(rank.waits() for rank in ranks if not rank.done))
    given = [values for rank in blocks for values in rank.values()]
    return [
        {port.key: values for port, values in zip(ports, detached(rank.returned(), given), strict=True)}
        for ports, rank in zip(program.results, ranks, strict=True)
    ]


class _Rank:
    """One rank's program and how far it has come."""

    def __init__(
        self,
        program: PipelineProgram,
        number: int,
        inputs: list[Values],
        messages: Messages,
        widen: bool,
        observe: Observe | None,
        library: Library | None,
        recall: Recall | None,
    ) -> None:
        self.number = number
        self._recall, self._texts = recall, dict[str, str]()
        codec = ShardingCodec(program.module.context, program.mesh)
        (time,) = [a for a in program.mesh.axes if a.kind == "time"]
        self._micro: Axis = program.mesh.whole(time.name)
        self._slices = program.slices
        self._ranks = Ranks(program.mesh, codec, program.mesh.world_size)
        self._machine = Machine(self._ranks, widen, observe, library)
        block = program.functions[number].regions[0].blocks[0]
        *self._body, self._end = read_block(block, self._machine.reader)
        self._values: Environment = dict(zip(block.arguments, inputs, strict=True))
        self._messages = messages
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._body)

    def advance(self) -> bool:
        """Runs until the end or a message that is not there; whether anything ran."""
        start = self._at
        while not self.done and self._run(self._body[self._at]):
            for value in self._body[self._at].dying:
                self._values.pop(value, None)
            self._at += 1
        return self._at > start

    def waits(self) -> str:
        """What the rank waits for, in words."""
        attributes = self._body[self._at].op.attributes
        return f"rank {self.number} for {attributes['tag'].value} of rank {attributes['source'].value}"

    def returned(self) -> list[Values]:
        return [self._values[v] for v in self._end.op.operands]

    def _run(self, instruction: Instruction) -> bool:
        op = instruction.op
        if instruction.name == "pipe.send":
            message = self.number, op.attributes["to"].value, op.attributes["tag"].value
            assert message not in self._messages, f"{message} is sent twice"
            self._messages[message] = self._values[op.operands[0]]
        elif instruction.name == "pipe.receive":
            message = op.attributes["source"].value, self.number, op.attributes["tag"].value
            if message not in self._messages:
                return False
            self._values[op.results[0]] = self._messages.pop(message)
        elif instruction.name == "pipe.action":
            made = self._run_action(op)
            self._values.update((result, made) for result in op.results)
        else:
            self._machine.run_instruction(instruction, self._values)
        return True

    def _run_action(self, op: ir.Operation) -> list[Values]:
        action, name = parse_action(op.attributes["action"].value), op.attributes["stage"].value
        number = (action.micro_batch or 0) // self._slices
        stage = find_stage(op, name)
        assert stage is not None
        inputs = self._values[op.operands[0]] if len(op.operands) else []

        def compute() -> list[Values]:
            with self._ranks.at(self._micro, number):
                (made,) = self._machine.run_block(stage.regions[0].blocks[0], inputs) or [[]]
            return made

        if self._recall is None:
            return compute()
        if name not in self._texts:
            self._texts[name] = stage.get_asm(assume_verified=True, use_local_scope=True)
        return self._recall.results(self._texts[name], number, inputs, compute)
