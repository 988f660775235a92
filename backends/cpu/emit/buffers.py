"""The memory that a kernel's function is handed: inputs, outputs, and a workspace cut into buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import (
    func,
    memref,  # noqa: F401  (registers the memref types' Python classes)
)

from shardc.dialects.kern.size import AnySize

ALIGNMENT_BYTES = 64
MAX_THREADS = 1024  # bounds the type of buffers that have a part for each thread
MAX_COUNT = 1 << 40  # bounds the type of memory whose size is not known


@dataclass(eq=False)
class Buffers:
    """Arguments of the function: thread number, thread count, sizes, inputs, outputs, then pieces of the
    workspace.

    ``shared``, ``private`` and ``partial`` hold the sizes, in bytes (to be rounded up, where symbolic), of
    buffers of which there is one; one for each thread, seen by it alone; one with a part for each thread,
    seen whole by all. ``kinds`` gives the order of arguments.
    """

    block: ir.Block
    shared: list[AnySize] = field(default_factory=list)
    private: list[AnySize] = field(default_factory=list)
    partial: list[AnySize] = field(default_factory=list)
    kinds: list[tuple[str, int]] = field(default_factory=list)

    def add(self, kind: str, count: AnySize, element: ir.Type) -> ir.Value:
        """A buffer of ``count`` elements; of a *partial* one,
        ``count`` is that of one thread's part (see :func:`padded`).
        """
        sizes = getattr(self, kind)
        self.kinds.append((kind, len(sizes)))
        if isinstance(count, int):
            sizes.append(-(-max(1, count) * width_bytes(element) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        else:
            sizes.append(count * width_bytes(element))
        return self.block.add_argument(
            memory(count * MAX_THREADS if kind == "partial" else count, element), ir.Location.unknown()
        )

    def finish(self, function: func.FuncOp) -> None:
        """Ends the function, whose memory does not overlap, and gives it the type of its arguments as they
        now are.
        """
        with ir.InsertionPoint(self.block):
            func.ReturnOp([])
        types = [a.type for a in self.block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        alias = {"llvm.noalias": ir.UnitAttr.get()}
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({} if isinstance(t, ir.IndexType) else alias) for t in types]
        )


def padded(count: AnySize) -> AnySize:
    """``count`` elements and as many more as keep the next thread's part from sharing a cache line."""
    if not isinstance(count, int):
        return count + ALIGNMENT_BYTES
    return -(-max(1, count) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def memory(count: AnySize, element: ir.Type) -> ir.MemRefType:
    """Contiguous memory of ``count`` elements; truth values take a byte."""
    bound = max(1, count) if isinstance(count, int) else MAX_COUNT
    return ir.MemRefType.get([bound], ir.IntegerType.get_signless(8) if width(element) == 1 else element)


def width(element: ir.Type) -> int:
    return element.width


def width_bytes(element: ir.Type) -> int:
    return max(1, width(element) // 8)


def count_of(shape: tuple[AnySize, ...]) -> AnySize:
    return prod(shape)
