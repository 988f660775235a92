"""Two versions of loops with sines, cosines or tangents: for arguments of usual size, and for all f32.

The exact reduction of an argument to a quarter of a turn takes most of the time of a sine, and only large
arguments need it. A loop over the arguments alone finds the largest of a piece; the quick version follows if
it is small enough. It watches arguments that depend on other sines itself; if one of them is large, the exact
version computes the piece anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from shardc.backends.cpu.lanes.expand import OF_SMALL, SMALL, is_expanded
from shardc.backends.cpu.lanes.polynomials import LARGEST_QUICK_ANGLE
from shardc.backends.cpu.object_code.marks import LOOP, copied
from shardc.dialects.inner_ops import inner_ops

PIECE = 1024
"""Steps of a loop whose arguments are checked together; twice as many are one piece."""


def add_versions(module: ir.Module) -> None:
    """Write the innermost loops of ``module`` that have sines, cosines or tangents of f32 in two versions."""
    with module.context, ir.Location.unknown():
        for loop in [op.opview for op in inner_ops(module.operation) if op.name == "scf.for"]:
            assert isinstance(loop, scf.ForOp)
            if any(len(op.operation.regions) for op in loop.body.operations):
                continue
            angles, late = _angles(loop)
            if angles or late:
                _write(loop, angles, late)


def _angles(loop: scf.ForOp) -> tuple[dict[ir.Value, list[ir.Operation]], list[ir.Value]]:
    """Return the arguments of the loop's sines and cosines, each with the ops of the loop that compute it.

    Those that depend on other sines are in a list of their own, if the loop can run twice. Leave out an
    argument that depends on a carried value.
    """
    found: dict[ir.Value, list[ir.Operation]] = {}
    late: dict[ir.Value, None] = {}
    repeats = _repeats(loop)
    for op in (view.operation for view in loop.body.operations):
        if op.name in OF_SMALL and is_expanded(op):
            angle = op.operands[0]
            made = _makers(loop, angle, False)
            if made is not None:
                found[angle] = made
            elif repeats and _makers(loop, angle, True) is not None:
                late[angle] = None
            else:
                continue
            op.attributes[SMALL] = ir.UnitAttr.get()
    return found, list(late)


def _repeats(loop: scf.ForOp) -> bool:
    """Return whether the loop reads nothing that it writes, so that a second run has the same results."""
    body = [view.operation for view in loop.body.operations]
    read = {op.operands[0] for op in body if op.name == "memref.load"}
    return read.isdisjoint(op.operands[1] for op in body if op.name == "memref.store")


def _makers(loop: scf.ForOp, value: ir.Value, sines: bool) -> list[ir.Operation] | None:
    """Return the ops of the loop that compute ``value``, in order; None if they must not run before it.

    ``sines``: whether sines may be among them.
    """
    body = [view.operation for view in loop.body.operations]
    needed, wanted = list[ir.Operation](), {value}
    for at, op in reversed(list(enumerate(body))):
        if wanted.isdisjoint(op.results):
            continue
        if op.name in OF_SMALL and not sines:
            return None
        if not op.name.startswith(("arith.", "math.", "memref.load")):
            return None
        if op.name == "memref.load" and _is_written(op, at, body):
            return None
        needed.append(op)
        wanted.update(op.operands)
    return None if wanted.intersection(loop.inner_iter_args) else needed[::-1]


def _is_written(load: ir.Operation, at: int, body: list[ir.Operation]) -> bool:
    """Return whether the loop may write what op number ``at`` reads; it may overwrite it afterwards."""
    buffer, *position = load.operands
    stores = ((n, op) for n, op in enumerate(body) if op.name == "memref.store" and op.operands[1] == buffer)
    moves = any(isinstance(p, ir.BlockArgument) or p.owner in body for p in position)
    return any(n < at or list(op.operands)[2:] != position or not moves for n, op in stores)


def _write(loop: scf.ForOp, angles: dict[ir.Value, list[ir.Operation]], late: list[ir.Value]) -> None:
    """Replace the loop by one over pieces, with both versions in it."""
    low, high, step, *carried = loop.operands
    types = [v.type for v in carried]
    with ir.InsertionPoint(loop.operation):
        by = arith.muli(step, arith.constant(ir.IndexType.get(), PIECE))
        pieces = scf.ForOp(low, high, by, carried)
        with ir.InsertionPoint(pieces.body):
            end = arith.minsi(high, arith.addi(pieces.induction_variable, by))
            operands = [pieces.induction_variable, end, step, *pieces.inner_iter_args]
            small = _is_small(_largest(loop, operands[:3], angles))
            found = list[ir.Value]()
            if late:
                small, *found = _watched(loop, small, operands, late)
            either = scf.IfOp(small, types, has_else=True)
            assert either.else_block is not None
            with ir.InsertionPoint(either.then_block):
                scf.YieldOp(found if late else list(_version(loop, operands, True).results))
            with ir.InsertionPoint(either.else_block):
                scf.YieldOp(list(_version(loop, operands, False).results))
            scf.YieldOp(list(either.results))
    for old, new in zip(loop.results, pieces.results, strict=True):
        old.replace_all_uses_with(new)
    loop.operation.erase()


def _is_small(largest: ir.Value) -> ir.Value:
    limit = ir.FloatAttr.get(ir.F32Type.get(), LARGEST_QUICK_ANGLE)
    return arith.cmpi(arith.CmpIPredicate.ule, largest, _bits(arith.constant(limit.type, limit)))


def _watched(
    loop: scf.ForOp, small: ir.Value, operands: list[ir.Value], late: list[ir.Value]
) -> list[ir.Value]:
    """Run the quick version if ``small``; return whether arguments ``late`` are small, too, and results."""
    low, high, step, *carried = operands
    no, none = arith.constant(small.type, 0), arith.constant(ir.IntegerType.get_signless(32), 0)
    tried = scf.IfOp(small, [small.type, *(v.type for v in carried)], has_else=True)
    assert tried.else_block is not None
    with ir.InsertionPoint(tried.then_block):
        quick = scf.ForOp(low, high, step, [*carried, none])
        if LOOP in loop.operation.attributes:
            quick.operation.attributes[LOOP] = loop.operation.attributes[LOOP]
        *ops, end = (view.operation for view in loop.body.operations)
        with ir.InsertionPoint(quick.body):
            *given, largest = quick.inner_iter_args
            made = dict(zip(loop.inner_iter_args, given, strict=True))
            made[loop.induction_variable] = quick.induction_variable
            for op in ops:
                copy = copied(op, [made.get(v, v) for v in op.operands])
                made.update(zip(op.results, copy.results, strict=True))
            for angle in late:
                largest = arith.maxui(largest, _bits(made.get(angle, angle)))
            scf.YieldOp([*(made.get(v, v) for v in end.operands), largest])
        *found, largest = quick.results
        scf.YieldOp([_is_small(largest), *found])
    with ir.InsertionPoint(tried.else_block):
        scf.YieldOp([no, *carried])
    return list(tried.results)


def _largest(loop: scf.ForOp, bounds: list[ir.Value], angles: dict[ir.Value, list[ir.Operation]]) -> ir.Value:
    """Return the bits of the largest magnitude of the arguments. Those of NaN and infinity are larger."""
    integer = ir.IntegerType.get_signless(32)
    none = arith.constant(integer, 0)
    low, high, step = bounds
    search = scf.ForOp(low, high, step, [none])
    with ir.InsertionPoint(search.body):
        found = {loop.induction_variable: search.induction_variable}
        (largest,) = search.inner_iter_args
        for op in _unique(angles.values(), loop):
            copy = copied(op, [found.get(v, v) for v in op.operands])
            found.update(zip(op.results, copy.results, strict=True))
        for angle in angles:
            largest = arith.maxui(largest, _bits(found.get(angle, angle)))
        scf.YieldOp([largest])
    return search.result


def _unique(lists: Iterable[list[ir.Operation]], loop: scf.ForOp) -> list[ir.Operation]:
    """Return all ops of ``lists`` in the loop's order."""
    needed = {op for ops in lists for op in ops}
    return [view.operation for view in loop.body.operations if view.operation in needed]


def _bits(value: ir.Value) -> ir.Value:
    """Return the bits of a number's magnitude as an f32."""
    integer = ir.IntegerType.get_signless(32)
    if value.type != ir.F32Type.get():
        value = arith.extf(ir.F32Type.get(), value)
    return arith.andi(arith.bitcast(integer, value), arith.constant(integer, 0x7FFFFFFF))


def _version(loop: scf.ForOp, operands: list[ir.Value], quick: bool) -> ir.Operation:
    copy = loop.operation.clone()
    for at, operand in enumerate(operands):
        copy.operands[at] = operand
    if not quick:
        for op in inner_ops(copy.operation):
            if SMALL in op.attributes:
                del op.attributes[SMALL]
    if LOOP in loop.operation.attributes:
        copy.operation.attributes[LOOP] = loop.operation.attributes[LOOP]
    return copy.operation
