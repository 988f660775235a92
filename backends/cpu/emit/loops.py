"""Context managers that build loops and branches, and a thread's share of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch_mlir import ir
from torch_mlir.dialects import arith, func, scf

from shardc.backends.cpu.emit.element import Count, Elements
from shardc.backends.cpu.object_code.marks import LONG_LOOP, LOOP, SHORT_LOOP, VECTORS

BARRIER = "GOMP_barrier"
"""Attribute of ``scf.for``. It keeps its name when the loop becomes a branch."""


def barrier() -> None:
    """Insert a barrier of all threads, which does nothing for a single thread."""
    func.CallOp([], BARRIER, [])


@contextmanager
def bounded_loop(elements: Elements, low: Count, high: Count, step: Count = 1) -> Iterator[ir.Value]:
    """Build a loop from ``low`` to before ``high``."""
    with carrying_loop(elements, low, high, (), step) as (position, _):
        yield position
        scf.YieldOp([])


@contextmanager
def carrying_loop(
    elements: Elements, low: Count, high: Count, carry: Sequence[ir.Value], step: Count = 1
) -> Iterator[tuple[ir.Value, scf.ForOp]]:
    """Build a loop whose body carries values. The caller must end the body with a yield."""
    first, end, by = map(elements.number, (low, high, step))
    loop = scf.ForOp(first, end, by, list(carry))
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable, loop


@contextmanager
def short_loop(elements: Elements, low: Count, high: Count) -> Iterator[ir.Value]:
    """Build a loop that stays a loop of vectors, if its number of steps is known to be small."""
    with carrying_loop(elements, low, high, ()) as (position, loop):
        yield position
        scf.YieldOp([])
    if isinstance(low, int) and isinstance(high, int) and SHORT_LOOP <= high - low < LONG_LOOP:
        loop.operation.attributes[LOOP] = ir.Attribute.parse(VECTORS)


def interleave(loop: scf.ForOp, vectors: int) -> None:
    """Make LLVM interleave an innermost loop by ``vectors`` vectors, without unrolling it.

    LLVM unrolls loops of up to 64 vectors, and would then turn several sums into one long dependence chain.
    """
    annotation = f"#llvm.loop_annotation<unroll = <disable = true>, interleave = <count = {vectors} : i32>>"
    loop.operation.attributes[LOOP] = ir.Attribute.parse(annotation)


@contextmanager
def when(condition: ir.Value) -> Iterator[None]:
    """Build a branch that runs only if ``condition`` holds."""
    with ir.InsertionPoint(scf.IfOp(condition).then_block):
        yield
        scf.YieldOp([])


def either(condition: ir.Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
    """Build a branch with the code of ``yes`` if ``condition`` holds, and otherwise that of ``no``."""
    branch = scf.IfOp(condition, has_else=True)
    assert branch.else_block is not None
    for block, write in ((branch.then_block, yes), (branch.else_block, no)):
        with ir.InsertionPoint(block):
            write()
            scf.YieldOp([])


def share(
    elements: Elements, total: Count, thread: ir.Value, threads: ir.Value, multiple: int = 1
) -> tuple[ir.Value, ir.Value]:
    """Return a thread's part of ``range(total)``. Parts begin at multiples of ``multiple``."""
    number = elements.number
    if isinstance(total, int):
        count, total = number(-(-total // multiple)), number(total)
    else:
        count = total = number(total)
        if multiple > 1:
            count = arith.divui(arith.addi(total, number(multiple - 1)), number(multiple))
    low = arith.divui(arith.muli(count, thread), threads)
    high = arith.divui(arith.muli(count, arith.addi(thread, number(1))), threads)
    if multiple == 1:
        return low, arith.minui(high, total)  # which bounds positions for what reads the loop
    low, high = (arith.muli(v, number(multiple)) for v in (low, high))
    return arith.minui(low, total), arith.minui(high, total)
