"""Emission of one graph's module as a Python function of ATen calls, for a single device.

The function takes its inputs in a list. It empties the list, so that each input can be freed after its last
use, such as the activations of a backward. It returns what the graph returns. Inputs that the graph mutates
are written at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from torch_mlir import ir

from shardc.backends.torch.block import Program, Strides
from shardc.backends.torch.body import Body, Store
from shardc.backends.torch.emit import step_function
from shardc.backends.torch.kernels import KERNEL
from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.postpone import postpone
from shardc.backends.torch.memory.schedule import schedule_block
from shardc.backends.torch.names import Names, tuple_text
from shardc.backends.torch.step import yielded
from shardc.dialects.aten.types import Order, read_type
from shardc.dialects.dist.mesh import Mesh, MeshAxis

_ONE_DEVICE = Mesh((MeshAxis("device", 1),))

CALLERS = ("primals", "arg")
"""AOTAutograd's names of arguments that callers hold, too. Others are gradients, or saved by forward."""

HEAD = '''"""A graph of torch.compile, written by shardc: `graph(rank, inputs)` on `rank.device`."""

import torch
from math import inf, nan
'''


def emit_graph(
    module: ir.Module,
    outputs: Sequence[int | None],
    writes: Sequence[tuple[int, int]] = (),
    strides: Sequence[Strides] = (),
    pooled: bool = False,
    relaid: bool = True,
) -> str:
    """Return the text of ``graph(rank, inputs)``, which returns a tuple with an entry for each of
    ``outputs``.

    ``outputs``: numbers of results of the module's ``@step``, or None for an entry None. ``inputs``, of the
    generated function, is a list of the arguments of ``@step``, which it empties. ``writes``: pairs
    (argument, result); the result is copied into the argument's memory at the end. ``strides``: required
    strides of results (None: contiguous). ``relaid``: make the program convert results to these strides,
    since kernels return contiguous tensors, whose layout ATen's results follow. Otherwise results must have
    them anyway, which the first run checks. ``pooled``: large matmul results are in the runtime's pool.
    Raises ValueError if the module has no ``@step``.
    """
    function = step_function(module)
    block = function.regions[0].blocks[0]
    arguments = list(block.arguments)
    results = yielded(block)
    program = Program.new(module, _ONE_DEVICE, Names(("graph", "inputs")), pooled)
    names = [ir.StringAttr(ir.DictAttr(a)["dist.name"]).value for a in function.attributes["arg_attrs"]]
    program.values.update(
        (value, program.names.exact(name)) for value, name in zip(arguments, names, strict=True)
    )
    pairs = [(arguments[argument], results[result]) for argument, result in writes]
    given = [number for number in outputs if number is not None]
    wanted = {results[number]: strides[number] for number in given} if strides else {}
    program.strides = {} if relaid else wanted
    returned = [results[number] for number in given]
    body = _write(program, block, results, pairs, returned, wanted if relaid else {})
    program.lines += _writes(program, pairs, body)
    texts = ["None" if number is None else program.values[results[number]] for number in outputs]
    return _assemble(program, [program.values[a] for a in arguments], texts)


def _write(
    program: Program,
    block: ir.Block,
    results: list[ir.Value],
    writes: list[Store],
    returned: list[ir.Value],
    wanted: Mapping[ir.Value, Strides],
) -> Body:
    """Write the function's body. ``wanted``: required strides of results.

    A result is converted right after its last read. At the end, all results would be alive beside the copy.
    """
    arguments = list(block.arguments)
    held = {a for a in arguments if program.values[a].startswith(CALLERS)} | {old for old, _ in writes}
    ordered = partial(postpone, given=arguments, kept=held, wanted=results)
    schedule = schedule_block(block, program.reader, results, ordered)
    read = {value: schedule.last.get(value, schedule.made.get(value, schedule.end)) for value in wanted}
    schedule.need_at_end(results)
    body = Body(program, schedule, Aliases(arguments), "    ", writes=writes, returned=returned)
    for value, strides in wanted.items():
        if strides is not None or not _is_contiguous(value):
            lines = partial(_laid_out, strides=strides)
            body.after.setdefault(read[value], []).append((value, lines))
    kept = {old for old, _ in writes}
    for value in (v for v in arguments if v not in kept):
        if value in schedule.last:
            body.dying.setdefault(schedule.last[value], []).append(value)
    body.free([value for value in arguments if value not in schedule.last and value not in kept])
    body.write()
    return body


def _writes(program: Program, pairs: list[Store], body: Body) -> list[str]:
    """Return lines that copy results into arguments. A result in an argument's memory is cloned first."""
    lines, copies = [], []
    for old, new in pairs:
        into, value = program.values[old], program.values[new]
        if new in body.overwritten and body.aliases.group(new) is body.aliases.group(old):
            copies.append(f"    if {value} is not {into}: {into}.copy_({value})")
            continue
        if body.aliases.group(new).foreign:
            lines.append(f"    {program.names.exact(f'kept_{value}')} = {value}.clone()")
            value = lines[-1].split()[0]
        copies.append(f"    {into}.copy_({value})")
    return lines + copies


def _is_contiguous(value: ir.Value) -> bool:
    """Return True if a result needs no conversion: kernels' results, arguments and integers."""
    if isinstance(value, ir.BlockArgument) or read_type(value.type) is None:
        return True
    made = value.owner
    if made.name == "torch.prim.TupleUnpack" and not isinstance(made.operands[0], ir.BlockArgument):
        made = made.operands[0].owner
    return made.name == KERNEL


def _laid_out(name: str, strides: Strides) -> list[str]:
    if strides is None:
        return [f"    {name} = {name}.contiguous()"]
    if isinstance(strides, Order):
        back = tuple(strides.dims.index(d) for d in range(len(strides.dims)))
        return [f"    {name} = {name}.permute({strides.dims}).contiguous().permute({back})"] if back else []
    strides = tuple(strides)
    if 0 in strides:  # expanded: the memory has just one element of such a dim
        one = f"{name}[{', '.join(':1' if n == 0 else ':' for n in strides)}]"
        copy = f"{name}.new_empty_strided({one}.shape, {strides}).copy_({one}).expand({name}.shape)"
    else:
        copy = f"{name}.new_empty_strided({name}.shape, {strides}).copy_({name})"
    return [f"    {name} = {name} if {name}.stride() == {strides} else {copy}"]


def _assemble(program: Program, arguments: list[str], returned: list[str]) -> str:
    lines = [HEAD, *program.functions.head(), *program.kernels.head(), "", "", "def graph(rank, inputs):"]
    if arguments:
        lines += [f"    {tuple_text(arguments)[1:-1]} = inputs", "    inputs.clear()"]
    return "\n".join([*lines, *program.lines, f"    return {tuple_text(returned)}", ""])
