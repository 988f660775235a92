"""Tensor descriptors (TMA) of a matmul's factors that are in memory in the order they are multiplied.

A descriptor's innermost dim is contiguous, and its other strides and its start are multiples of 16 bytes.
Elements beyond its shape read as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.body.graph import Argument, Generic, Slice, Value, View
from shardc.backends.body.linear import Index, Linear, row_major
from shardc.backends.triton.emit.module import Module
from shardc.backends.triton.matmul.contraction import BYTES, Matmul
from shardc.dialects.kern.size import AnySize, Size, hint

HAS_DESCRIPTORS = (90, 100)
"""Architectures whose hardware reads tiles by tensor descriptors."""
ALIGNMENT_BYTES = 16
_ALLOCATE = '''def allocate(size, alignment, stream):
    """Memory for tensor descriptors, which Triton asks for at each launch."""
    return torch.empty(size, dtype=torch.int8, device="cuda")'''


@dataclass(frozen=True)
class Descriptor:
    """``name = make`` is emitted before the loops; ``load`` reads the tile at ``first_m`` or ``first_n`` and
    ``start``; ``pointer`` is the parameter of the tensor, whose address is a multiple of 16 bytes.
    """

    name: str
    make: str
    load: str
    pointer: str


def find_descriptor(matmul: Matmul, side: int) -> Descriptor | None:
    """Return the descriptor of the left (0) or right (1) factor, or None.

    None if the factor is computed, if its strides or start do not allow it, or without matrix instructions:
    factors go through registers then, which spilled 344 to 616 bytes.
    """
    source = _source(matmul, side)
    if source is None or not matmul.matrix:
        return None
    argument, offset = source
    letter = "mn"[side]
    rows, terms = matmul.axes[letter], matmul.axes["k"]
    batch = {a: offset.factor(a) for a in matmul.axes["b"]}
    known = {a for a, _ in offset.terms} - matmul.nest.merged
    if len(rows) != 1 or len(terms) != 1 or len(batch) > 1 or not known <= {*rows, *terms, *batch}:
        return None
    row, term = offset.factor(rows[0]), offset.factor(terms[0])
    steps = [offset.constant, *batch.values()]
    if any(isinstance(n, Size) for n in (matmul.size(letter), matmul.size("k"), row, term, *steps)):
        return None
    if 1 not in (row, term) or not all(_is_aligned(n, matmul) for n in (row * term, *steps)):
        return None
    name, pointer = ("left_tiles", "right_tiles")[side], matmul.memory.of[argument].name
    start = f"{pointer} + {offset.constant}" if offset.constant != 0 else pointer
    far = ".to(tl.int64)" if matmul.is_far else ""
    start += "".join(f" + batch{far} * {n}" for n in batch.values() if n != 0)
    size, block, first = letter.upper(), f"BLOCK_{letter.upper()}", f"first_{letter}"
    if term == 1:  # rows of contiguous terms
        shape, blocks, at, is_turned = f"{size}, K", f"{block}, BLOCK_K", f"{first}, start", side == 1
    else:
        shape, blocks, at, is_turned = f"K, {size}", f"BLOCK_K, {block}", f"start, {first}", side == 0
    make = f"tl.make_tensor_descriptor({start}, [{shape}], [{row * term}, 1], [{blocks}])"
    return Descriptor(name, make, f"{name}.load([{at}]){'.T' * is_turned}", pointer)


def reads_by_descriptor(matmul: Matmul) -> bool:
    """Return True if a loop over tiles reads both factors by descriptors, made outside it (Triton 3.6)."""
    has = matmul.target.arch in HAS_DESCRIPTORS and not matmul.axes["b"]
    return has and all(find_descriptor(matmul, side) for side in (0, 1))


def read_by_descriptors(module: Module, arguments: Sequence[str]) -> None:
    """Add what ``launch`` does before it starts functions with descriptors of these parameters."""
    module.helpers.append(_ALLOCATE)
    for name in arguments:
        module.before.append(
            f"{name} = {name} if {name}.data_ptr() % {ALIGNMENT_BYTES} == 0 else {name}.clone()  # for "
            f"descriptors"
        )
    module.before.append("triton.set_allocator(allocate)")


def is_direct(matmul: Matmul, side: int) -> bool:
    """Return True if a factor is copied to shared memory by 16 bytes; smaller copies use registers."""
    source = _source(matmul, side)
    if source is None:
        return False
    _, offset = source
    factors = [hint(f) for axis, f in offset.terms if axis not in matmul.nest.merged]
    others = [*(f for f in factors if f != 1), hint(offset.constant)]
    return 1 in factors and all(_is_aligned(f, matmul) for f in others)


def _is_aligned(elements: AnySize, matmul: Matmul) -> bool:
    """Return True if this many elements, at the size first seen, are a multiple of 16 bytes."""
    return hint(elements) * BYTES.get(matmul.element, 8) % ALIGNMENT_BYTES == 0


def _source(matmul: Matmul, side: int) -> tuple[Argument, Linear] | None:
    """Return the tensor in memory that a factor reads, and the elements' offset; None if it is computed."""
    value, generic = matmul.factors[side], matmul.generic
    if not isinstance(value, ir.BlockArgument) or value.owner != generic.block:
        return None
    number = value.arg_number
    found = in_memory(generic.operands[number], generic.operand_index(number, matmul.contraction.root.dims))
    if found is None or found[0] not in matmul.memory.of:
        return None
    return found[0], row_major(found[1], found[0].shape)


def in_memory(value: Value, index: Index) -> tuple[Argument, Index] | None:
    """Return the tensor that a chain of views and slices reads, and the index in it; None if computed."""
    while not isinstance(value, Argument):
        if not (isinstance(value, Slice) or (isinstance(value, View) and value.follows)):
            return None
        value, index = value.source, value.source_index(index)
    return value, index


def is_read(generic: Generic, value: ir.Value, index: Index) -> bool:
    """Return True if a scalar is an element in memory, at most converted: 0 where a load is masked."""
    while not isinstance(value, ir.BlockArgument):
        made = value.owner.operation
        if made.name not in ("arith.extf", "arith.truncf"):
            return False
        value = made.operands[0]
    if value.owner != generic.block:
        return False
    number = value.arg_number
    return in_memory(generic.operands[number], generic.operand_index(number, index)) is not None
