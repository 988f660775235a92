"""A kernel's function: the memory that it is handed, and what is known of it once it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import (
    func,
    memref,  # noqa: F401  (registers the memref types' Python classes)
)

from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize
from shardc.dialects.kern.types import element_type

ALIGNMENT_BYTES = 64
MAX_THREADS = 1024  # bounds the type of buffers that have a part for each thread
MAX_COUNT = 1 << 40  # bounds the type of memory whose size is not known


class Buffers:
    """The function ``@name_body`` and its arguments: thread number, thread count, ``sizes`` sizes, memory of
    the types ``memory``, then the buffers that the workspace is cut into.

    ``sizes`` are those, in bytes (to be rounded up, where symbolic), of ``shared`` buffers, of which there is
    one; ``private`` ones, one for each thread, seen by it alone; ``partial`` ones, with a part for each
    thread, seen whole by all. ``kinds`` gives the order of arguments.
    """

    def __init__(self, name: str, sizes: int, memory: Sequence[ir.Type], module: ir.Module) -> None:
        index = ir.IndexType.get(module.context)
        with ir.InsertionPoint(module.body):
            self.function = func.FuncOp(f"{name}_body", ([*[index] * (2 + sizes), *memory], []))
        self.block: ir.Block = self.function.add_entry_block()
        self.thread, self.threads = self.block.arguments[0], self.block.arguments[1]
        self.sizes: dict[str, list[AnySize]] = {"shared": [], "private": [], "partial": []}
        self.kinds: list[tuple[str, int]] = []

    def add(self, kind: str, count: AnySize, element: ir.Type) -> ir.Value:
        """A buffer of ``count`` elements; for a *partial* one, of each thread's part (see :func:`padded`)."""
        sizes = self.sizes[kind]
        self.kinds.append((kind, len(sizes)))
        if isinstance(count, int):
            sizes.append(-(-max(1, count) * width_bytes(element) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        else:
            sizes.append(count * width_bytes(element))
        whole = count * MAX_THREADS if kind == "partial" else count
        return self.block.add_argument(memory(whole, element), ir.Location.unknown())

    def finish(self) -> None:
        """Ends the function, whose memory does not overlap, and gives it the type of its arguments."""
        with ir.InsertionPoint(self.block):
            func.ReturnOp([])
        types = [a.type for a in self.block.arguments]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        alias = {"llvm.noalias": ir.UnitAttr.get()}
        attributes = [ir.DictAttr.get({} if isinstance(t, ir.IndexType) else alias) for t in types]
        self.function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


@dataclass(eq=False)
class Emitted:
    """A function ``@name_body``: tensors that it takes and makes, threads that pay, and its workspace.

    ``outputs`` are those with memory of their own. ``elements_per_thread`` (0: sizes are known) are those of
    a flat kernel below which another thread does not pay. A kernel with symbolic sizes takes so many
    ``sizes``; ``work``, in additions, of which a thread is worth ``work_per_thread``, says then how many
    threads pay, and ``max_threads`` is an estimate.
    """

    name: str
    inputs: int
    outputs: int
    max_threads: int
    buffers: Buffers
    elements_per_thread: int = 0
    sizes: int = 0
    work: AnySize = 0
    work_per_thread: int = 1


def padded(count: AnySize) -> AnySize:
    """``count`` elements and as many more as keep the next thread's part from sharing a cache line."""
    if not isinstance(count, int):
        return count + ALIGNMENT_BYTES
    return -(-max(1, count) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def memory(count: AnySize, element: ir.Type) -> ir.MemRefType:
    """Contiguous memory of ``count`` elements; truth values take a byte."""
    bound = max(1, count) if isinstance(count, int) else MAX_COUNT
    return ir.MemRefType.get([bound], ir.IntegerType.get_signless(8) if width(element) == 1 else element)


def memory_of(tensor: TensorType, context: ir.Context) -> ir.MemRefType:
    """The memory of a tensor that a kernel takes or makes."""
    return memory(prod(tensor.shape), element_type(tensor.dtype, context))


def width(element: ir.Type) -> int:
    """The bits of an element."""
    assert isinstance(element, ir.IntegerType | ir.FloatType)
    return element.width


def width_bytes(element: ir.Type) -> int:
    """The bytes that an element takes in memory."""
    return max(1, width(element) // 8)
