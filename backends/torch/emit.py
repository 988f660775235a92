"""Emission of a level 3 or 4 module as the program that every rank runs: one readable Python function.

It has one line for each ATen call, kernel and collective. A collective's line only starts it. Its ``wait()``
is where the result is first needed, or earlier if too much is in flight. Gathers of parameters start a number
of bytes ahead of their first use. Values are freed after their last use. Parameters, optimizer state and
buffers are replaced in place (``rank.store``) as soon as the new value exists and the old one is no longer
read, so a step does not hold two copies of them. The other results, such as the loss, are returned.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.body.extract import kernels
from shardc.backends.eager.program import find_step
from shardc.backends.torch.block import Messages, Program
from shardc.backends.torch.body import Body, Store
from shardc.backends.torch.handed import handed, split
from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.arrived import arrivals
from shardc.backends.torch.memory.schedule import schedule_block
from shardc.backends.torch.names import Names, tuple_text
from shardc.backends.torch.step import yielded
from shardc.dialects.collection import collection_paused
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.tuples import packed
from shardc.dialects.pipe.rank_function import function_name, pipeline_axis, rank_functions
from shardc.dialects.pipe.schedule_op import find_schedule
from shardc.dialects.pipe.stage import StageOp
from shardc.passes.pipeline.checks.rank_events import sums_of_stages
from shardc.passes.pipeline.ranks.inline_collectives import inlined
from shardc.runtime.check import STATE_ROLES

HEAD = '''"""The step that every rank runs, written by shardc. Shapes are local; `rank` does the communication."""

import torch
from math import inf, nan
'''  # noqa: E501


Text = tuple[str, list[str]]
"""Line of a function's ``def``, and lines of its body."""
Edge = tuple[tuple[str, str], ir.Value]
"""(Role, name) of an argument or result of the step, and its value in the function."""


def emit_program(module: ir.Module) -> str:
    """Return the text of level 3 or 4's ``@step``: ``GROUPS``, and ``step(rank, *arguments)`` -> a tuple.

    For a pipeline it has ``STEPS``, with such a function for each rank, and ``ACTIONS``, the actions of each
    rank in order. A program with kernels needs the globals ``kernel``
    (:meth:`shardc.runtime.kernels.library.Library.kernel`) and ``empty``
    (:func:`shardc.runtime.kernels.pool.contiguous`), because large results of kernels and matmuls are in the
    pool.

    Raises ValueError if the module has no mesh or no step.
    """
    with collection_paused():
        return _emit(module)


def _emit(module: ir.Module) -> str:
    module = inlined(module)
    mesh = read_mesh(module)
    if mesh is None:
        raise ValueError("the module has no dist.mesh: it is not at level 3")
    program = Program.new(module, mesh, Names(), pooled=bool(kernels(module)))
    axis = pipeline_axis(module)
    if axis is None:
        return _assemble(program, [_write_step(program, step_function(module), "step")])
    texts = _write_stages(program, module, mesh, mesh.whole(axis))
    functions = rank_functions(module)
    for number, function in enumerate(functions):
        texts.append(_write_step(program, function, function_name(number)))
    steps = ", ".join(function_name(number) for number in range(len(functions)))
    actions = "".join(f'    "{" ".join(_actions(function))}",\n' for function in functions)
    return _assemble(program, texts) + f"\n\nSTEPS = [{steps}]\nACTIONS = [\n{actions}]\n"


def _write_stages(program: Program, module: ir.Module, mesh: Mesh, axis: Axis) -> list[Text]:
    """Write a function ``stage_0_F(rank, micro_batch, ...)`` for each ``pipe.stage``; it returns a tuple."""
    schedule = find_schedule(module)
    assert schedule is not None
    functions = rank_functions(module)
    messages = Messages(
        program.dist.axes.group((axis,)),
        slices=ir.IntegerAttr(schedule.attributes["slices"]).value,
        arrived=arrivals(functions),
        handed=handed(functions, sums_of_stages(module)),
    )
    program.messages = messages
    (time,) = [a for a in mesh.axes if a.kind == "time"]
    found = []
    for op in (o.operation for o in module.body.operations):
        if op.name == StageOp.OPERATION_NAME:
            symbol = ir.StringAttr(op.attributes["sym_name"]).value
            name = messages.stages[symbol] = program.names.exact(symbol)
            micro_batch = program.dist.axes.enter_loop(mesh.whole(time.name))
            found.append(
                _write_stage(program, op, name, micro_batch, messages.handed.get(symbol, frozenset()))
            )
    return found


def _write_stage(
    program: Program, op: ir.Operation, name: str, micro_batch: str, positions: frozenset[int]
) -> Text:
    """Write the function of a stage, which takes over the arguments at ``positions`` in a list."""
    block = op.regions[0].blocks[0]
    arguments = list(block.arguments)
    for value in arguments:
        program.values[value] = program.names.numbered("x")
    results = packed(yielded(block))
    program.lines, program.place = [], (None, None)
    schedule = schedule_block(block, program.reader, results)
    schedule.need_at_end(results)
    passed, schedule.owned = split(arguments, positions)
    body = Body(program, schedule, Aliases(arguments), "    ", returned=results)
    parameters = ["rank", micro_batch, *(program.values[v] for v in passed)]
    if schedule.owned:
        parameters.append(program.names.numbered("handed"))
        body.line(f"{', '.join(program.values[v] for v in schedule.owned)}, = {parameters[-1]}")
        body.line(f"{parameters[-1]}.clear()")
    body.write()
    body.line(f"return ({''.join(f'{body.name(v)}, ' for v in results).rstrip()})")
    return f"def {name}({', '.join(parameters)}):", program.lines


def _actions(function: ir.Operation) -> list[str]:
    """Return the actions of a pipeline's rank, in order."""
    ops = (o.operation for o in function.regions[0].blocks[0].operations)
    return [ir.StringAttr(op.attributes["action"]).value for op in ops if op.name == "pipe.action"]


def _write_step(program: Program, function: ir.Operation, step: str) -> Text:
    block = function.regions[0].blocks[0]
    arguments = _edges(function, "arg_attrs", list(block.arguments))
    results = _edges(function, "res_attrs", yielded(block))
    for (_, name), value in arguments:
        program.values[value] = program.names.exact(name)
    stores, outputs = _split_results(arguments, results)
    program.lines, program.place = [], (None, None)
    _write_function(program, block, arguments, stores, outputs)
    parameters = "".join(f"    {program.values[value]},\n" for _, value in arguments)
    return f"def {step}(\n    rank,\n{parameters}):", program.lines


def step_function(module: ir.Module) -> ir.Operation:
    """Return the module's ``func.func @step``. Raises ValueError if there is none."""
    step = find_step(module)
    if step is None:
        raise ValueError("the module has no function @step")
    return step


def _edges(function: ir.Operation, attribute: str, values: list[ir.Value]) -> list[Edge]:
    found = function.attributes[attribute] if attribute in function.attributes else [{}] * len(values)
    edges = []
    for number, (attributes, value) in enumerate(zip(found, values, strict=True)):
        read = {key: attributes[key].value for key in ("dist.name", "dist.role") if key in attributes}
        edges.append(((read.get("dist.role", ""), read.get("dist.name", f"value_{number}")), value))
    return edges


def _split_results(arguments: list[Edge], results: list[Edge]) -> tuple[list[Store], list[ir.Value]]:
    """Return (argument, new value) for state that changes, and the values to return."""
    state = {key: value for key, value in arguments if key[0] in STATE_ROLES}
    stores = [(state[key], value) for key, value in results if key in state]
    outputs = [value for key, value in results if key not in state]
    return [(old, new) for old, new in stores if old != new], outputs


def _write_function(
    program: Program, block: ir.Block, arguments: list[Edge], stores: list[Store], outputs: list[ir.Value]
) -> None:
    values = [value for _, value in arguments]
    schedule = schedule_block(block, program.reader, [*outputs, *(new for _, new in stores)])
    schedule.need_at_end(outputs)
    _name_new_values(program, arguments, stores, schedule.made)
    body = Body(program, schedule, Aliases(values), "    ", stores, returned=outputs)
    body.write()
    if program.messages is not None:
        body.line("rank.finish_all_sends()")
    body.line(f"return {tuple_text(map(body.name, outputs))}")


def _name_new_values(
    program: Program, arguments: list[Edge], stores: list[Store], made: dict[ir.Value, int]
) -> None:
    """Name new values after their arguments.

    Raises ValueError if one state argument is the new value of another, which no traced step has.
    """
    names = {value: name for (_, name), value in arguments}
    for old, new in stores:
        if new in names:
            given, old_name = program.values[new], program.values[old]
            raise ValueError(f"argument {given} is the new value of {old_name}: copy it in the program")
        if new in made and new not in program.values:
            program.values[new] = program.names.exact(f"new_{names[old]}")


def _assemble(program: Program, texts: list[Text]) -> str:
    axes = program.dist.axes
    indices = [f"    {line}" for line in axes.indices()]
    lines = [HEAD, *axes.head(), "", *program.functions.head(), *program.kernels.head()]
    for head, body in texts:
        lines += ["", "", head, *indices, *body]
    return "\n".join([*lines, ""])
