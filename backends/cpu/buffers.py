"""The memory that a kernel's function is handed: inputs, outputs, and a workspace cut into buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import memref  # noqa: F401  (registers the memref types' Python classes)

ALIGNMENT_BYTES = 64
MAX_THREADS = 1024  # bounds the type of buffers that have a part for each thread


@dataclass(eq=False)
class Buffers:
    """Arguments of the function: thread number, thread count, inputs, outputs, then pieces of the workspace.

    ``shared``, ``private`` and ``partial`` hold the sizes, in bytes, of buffers of which there is one; one for each
    thread, seen by it alone; one with a part for each thread, seen whole by all. ``kinds`` gives the order of arguments.
    """

    block: ir.Block
    shared: list[int] = field(default_factory=list)
    private: list[int] = field(default_factory=list)
    partial: list[int] = field(default_factory=list)
    kinds: list[tuple[str, int]] = field(default_factory=list)

    def add(self, kind: str, count: int, element: ir.Type) -> ir.Value:
        """A buffer of ``count`` elements; of a *partial* one, ``count`` is that of one thread's part (see :func:`padded`)."""
        sizes = getattr(self, kind)
        bytes_ = max(1, count) * width_bytes(element)
        self.kinds.append((kind, len(sizes)))
        sizes.append(-(-bytes_ // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        return self.block.add_argument(
            memory(count * MAX_THREADS if kind == "partial" else count, element), ir.Location.unknown()
        )


def padded(count: int) -> int:
    """``count`` elements rounded up so that the next thread's part starts on a cache line of its own."""
    return -(-max(1, count) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def memory(count: int, element: ir.Type) -> ir.MemRefType:
    """Contiguous memory of ``count`` elements; truth values take a byte."""
    return ir.MemRefType.get([max(1, count)], ir.IntegerType.get_signless(8) if width(element) == 1 else element)


def width(element: ir.Type) -> int:
    return element.width


def width_bytes(element: ir.Type) -> int:
    return max(1, width(element) // 8)


def count_of(shape: tuple[int, ...]) -> int:
    return prod(shape)
