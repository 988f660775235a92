"""The program of a pipeline's ranks: a function for each stage's body, which each rank's calls in order."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.torch.block import Messages, Program
from shardc.backends.torch.body import Body
from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.schedule import schedule_block
from shardc.backends.torch.step import yielded
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.tuples import packed
from shardc.dialects.pipe.schedule_op import find_schedule
from shardc.dialects.pipe.stage import StageOp

Text = tuple[str, list[str]]
"""The line of a function's ``def`` and those of its body."""


def write_stages(program: Program, module: ir.Module, mesh: Mesh, axis: Axis) -> list[Text]:
    """A function ``stage_0_F(rank, micro_batch, ...)`` for each ``pipe.stage``; it returns a tuple."""
    schedule = find_schedule(module)
    assert schedule is not None
    messages = Messages(
        program.dist.axes.group((axis,)), slices=ir.IntegerAttr(schedule.attributes["slices"]).value
    )
    program.messages = messages
    (time,) = [a for a in mesh.axes if a.kind == "time"]
    found = []
    for op in (o.operation for o in module.body.operations):
        if op.name == StageOp.OPERATION_NAME:
            symbol = ir.StringAttr(op.attributes["sym_name"]).value
            name = messages.stages[symbol] = program.names.exact(symbol)
            found.append(_stage(program, op, name, program.dist.axes.enter_loop(mesh.whole(time.name))))
    return found


def _stage(program: Program, op: ir.Operation, name: str, micro_batch: str) -> Text:
    block = op.regions[0].blocks[0]
    arguments = list(block.arguments)
    for value in arguments:
        program.values[value] = program.names.numbered("x")
    results = packed(yielded(block))
    program.lines, program.place = [], (None, None)
    schedule = schedule_block(block, program.reader, results)
    schedule.need_at_end(results)
    body = Body(program, schedule, Aliases(arguments), "    ", returned=results)
    body.write()
    body.line(f"return ({''.join(f'{body.name(v)}, ' for v in results).rstrip()})")
    head = f"def {name}({', '.join(['rank', micro_batch, *(program.values[v] for v in arguments)])}):"
    return head, program.lines
