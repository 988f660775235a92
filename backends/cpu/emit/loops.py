"""Loops as context managers, and a thread's share of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch_mlir import ir
from torch_mlir.dialects import arith, func, scf

from shardc.backends.cpu.emit.element import Elements
from shardc.dialects.kern.size import AnySize

BARRIER = "GOMP_barrier"
LOOP = "llvm.loop_annotation"
"""An attribute of ``scf.for``, of the same name where it has become a branch."""


def barrier() -> None:
    """Threads wait for each other here; nothing if there is one."""
    func.CallOp([], BARRIER, [])


@contextmanager
def bounded_loop(
    elements: Elements,
    low: ir.Value | AnySize,
    high: ir.Value | AnySize,
    step: ir.Value | int = 1,
    carry: Sequence[ir.Value] = (),
) -> Iterator[tuple[ir.Value, scf.ForOp]]:
    """A loop from ``low`` to before ``high``. The body of one that carries values ends with a yield of its
    own.
    """
    low, high, step = (v if isinstance(v, ir.Value) else elements.number(v) for v in (low, high, step))
    loop = scf.ForOp(low, high, step, list(carry))
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable, loop
        if not carry:
            scf.YieldOp([])


def interleave(loop: scf.ForOp, vectors: int) -> None:
    """Has the steps of an innermost loop run in so many vectors side by side, and not be written out.

    LLVM writes loops of up to 64 vectors out, and then makes one long sum of what would be several.
    """
    annotation = f"#llvm.loop_annotation<unroll = <disable = true>, interleave = <count = {vectors} : i32>>"
    loop.operation.attributes[LOOP] = ir.Attribute.parse(annotation)


@contextmanager
def when(condition: ir.Value) -> Iterator[None]:
    """What is done only where ``condition`` holds."""
    with ir.InsertionPoint(scf.IfOp(condition).then_block):
        yield
        scf.YieldOp([])


def share(
    elements: Elements, total: AnySize | ir.Value, thread: ir.Value, threads: ir.Value, multiple: int = 1
) -> tuple[ir.Value, ir.Value]:
    """The part of ``range(total)`` that belongs to ``thread`` of ``threads``;
    parts begin at multiples of ``multiple``.
    """
    number = elements.number
    if isinstance(total, int):
        count, total = number(-(-total // multiple)), number(total)
    else:
        total = total if isinstance(total, ir.Value) else number(total)
        count = (
            arith.divui(arith.addi(total, number(multiple - 1)), number(multiple)) if multiple > 1 else total
        )
    low = arith.divui(arith.muli(count, thread), threads)
    high = arith.divui(arith.muli(count, arith.addi(thread, number(1))), threads)
    if multiple == 1:
        return low, high
    low, high = (arith.muli(v, number(multiple)) for v in (low, high))
    return arith.minui(low, total), arith.minui(high, total)
