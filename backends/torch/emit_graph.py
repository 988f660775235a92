"""From the module of one graph to a Python function of ATen calls, for one device and for whoever runs it.

It takes its inputs in a list, which it empties so that each can be freed after its last use (a backward holds
all activations in it), and returns what the graph returns. Inputs that the graph writes to are written to at
the end.
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
"""AOTAutograd's names of arguments that callers hold, too; others are saved by forward, or gradients."""

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
    """The text of ``graph(rank, inputs)``, which returns a tuple with an entry for each of ``outputs``.

    An entry is the number of a result of the module's ``@step``, or None for None. ``inputs`` is a list of
    the arguments of ``@step``; the function empties it. ``writes`` are pairs (argument, result): the result
    is copied into the argument's memory at the end. ``strides`` says how results must be laid out (None:
    contiguous). If ``relaid`` the program sees to it: kernels make contiguous tensors, and what ATen makes of
    those follows them. Else they are so anyway, which its first run checks. ``pooled``: large results of
    matrix products are in the runtime's pool. Raises ValueError if the module has no ``@step``.
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
    """``wanted``: how results must be laid out. Each is when it was last read, not at the end, when all that
    is returned is there beside a copy.
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
    """Copy written results; one that shares memory with an argument is first taken out of it."""
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
    """Whether that is known of a result: a kernel's is, an argument's is as given, an integer has none."""
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
    if 0 in strides:  # expanded: one element of such a dim is all that its memory has
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
