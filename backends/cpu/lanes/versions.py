"""Two versions of loops with sines, cosines or tangents: for arguments of usual size, and for all f32.

The exact reduction of an argument to a quarter of a turn takes most of the time of a sine, and only large
arguments need it. A loop over the arguments alone finds the largest of a piece; the quick version follows if
it is small enough.
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
            angles = _angles(loop)
            if angles:
                _write(loop, angles)


def _angles(loop: scf.ForOp) -> dict[ir.Value, list[ir.Operation]]:
    """Return the arguments of the loop's sines and cosines, each with the ops of the loop that compute it.

    Leave out an argument that depends on a carried value or on another sine.
    """
    found: dict[ir.Value, list[ir.Operation]] = {}
    for op in (view.operation for view in loop.body.operations):
        if op.name in OF_SMALL and is_expanded(op):
            angle = op.operands[0]
            made = _makers(loop, angle)
            if made is not None:
                found[angle] = made
                op.attributes[SMALL] = ir.UnitAttr.get()
    return found


def _makers(loop: scf.ForOp, value: ir.Value) -> list[ir.Operation] | None:
    """Return the ops of the loop that compute ``value``, in order; None if they must not run before it."""
    body = [view.operation for view in loop.body.operations]
    needed, wanted = list[ir.Operation](), {value}
    for at, op in reversed(list(enumerate(body))):
        if wanted.isdisjoint(op.results):
            continue
        if op.name in OF_SMALL or not op.name.startswith(("arith.", "math.", "memref.load")):
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


def _write(loop: scf.ForOp, angles: dict[ir.Value, list[ir.Operation]]) -> None:
    """Replace the loop by one over pieces, with both versions in it."""
    low, high, step, *carried = loop.operands
    with ir.InsertionPoint(loop.operation):
        by = arith.muli(step, arith.constant(ir.IndexType.get(), PIECE))
        pieces = scf.ForOp(low, high, by, carried)
        with ir.InsertionPoint(pieces.body):
            end = arith.minsi(high, arith.addi(pieces.induction_variable, by))
            bounds = [pieces.induction_variable, end, step]
            largest = _largest(loop, bounds, angles)
            limit = ir.FloatAttr.get(ir.F32Type.get(), LARGEST_QUICK_ANGLE)
            small = arith.cmpi(arith.CmpIPredicate.ule, largest, _bits(arith.constant(limit.type, limit)))
            either = scf.IfOp(small, [v.type for v in carried], has_else=True)
            assert either.else_block is not None
            for block, quick in ((either.then_block, True), (either.else_block, False)):
                with ir.InsertionPoint(block):
                    version = _version(loop, [*bounds, *pieces.inner_iter_args], quick)
                    scf.YieldOp(list(version.results))
            scf.YieldOp(list(either.results))
    for old, new in zip(loop.results, pieces.results, strict=True):
        old.replace_all_uses_with(new)
    loop.operation.erase()


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
