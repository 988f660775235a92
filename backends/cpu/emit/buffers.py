"""Function of a kernel: its arguments and buffers, and the facts about it after generation."""

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
    """Function ``@name_body`` with its arguments: thread number, thread count, ``sizes`` sizes, memory of the
    types ``memory``, then the buffers of the workspace.

    Attribute ``sizes``: bytes of the buffers by kind (symbolic ones still to be rounded up). There is one
    ``shared`` buffer for all threads; each thread has its own ``private`` buffer; a ``partial`` buffer has a
    part for each thread, and all threads see all parts. ``kinds``: order of these arguments.
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
        """Add a buffer of ``count`` elements; for *partial* ones, in each part (see :func:`padded`)."""
        sizes = self.sizes[kind]
        self.kinds.append((kind, len(sizes)))
        if isinstance(count, int):
            sizes.append(-(-max(1, count) * width_bytes(element) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        else:
            sizes.append(count * width_bytes(element))
        whole = count * MAX_THREADS if kind == "partial" else count
        return self.block.add_argument(memory(whole, element), ir.Location.unknown())

    def finish(self) -> None:
        """End the function, and set its type and its arguments' ``noalias`` attributes."""
        with ir.InsertionPoint(self.block):
            func.ReturnOp([])
        types = [a.type for a in self.block.arguments]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        alias = {"llvm.noalias": ir.UnitAttr.get()}
        attributes = [ir.DictAttr.get({} if isinstance(t, ir.IndexType) else alias) for t in types]
        self.function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


@dataclass(eq=False)
class Emitted:
    """Generated function ``@name_body``: its inputs and outputs, useful threads, and workspace.

    ``outputs``: number of results with their own memory. ``elements_per_thread``: for a flat kernel, the
    number of elements from which on another thread is useful; 0 if sizes are known. ``sizes``: number of
    symbolic sizes. With symbolic sizes, ``work``, in additions, divided by ``work_per_thread`` gives the
    number of useful threads, and ``max_threads`` is an estimate.
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
    """Round ``count`` elements up, so that parts of different threads share no cache line."""
    if not isinstance(count, int):
        return count + ALIGNMENT_BYTES
    return -(-max(1, count) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def memory(count: AnySize, element: ir.Type) -> ir.MemRefType:
    """Return the type of contiguous memory of ``count`` elements. A boolean takes a byte."""
    bound = max(1, count) if isinstance(count, int) else MAX_COUNT
    return ir.MemRefType.get([bound], ir.IntegerType.get_signless(8) if width(element) == 1 else element)


def memory_of(tensor: TensorType, context: ir.Context) -> ir.MemRefType:
    """Return the memory type of a kernel's input or output tensor."""
    return memory(prod(tensor.shape), element_type(tensor.dtype, context))


def width(element: ir.Type) -> int:
    """Return the bits of an element."""
    assert isinstance(element, ir.IntegerType | ir.FloatType)
    return element.width


def width_bytes(element: ir.Type) -> int:
    """Return the bytes of an element in memory."""
    return max(1, width(element) // 8)
