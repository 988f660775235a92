"""Description of a contraction for the cost model."""

from __future__ import annotations

from shardc.backends.body.graph import Value
from shardc.backends.triton.emit.traffic import element_bytes, instructions
from shardc.backends.triton.matmul.contraction import BYTES, LETTERS, Matmul
from shardc.backends.triton.matmul.descriptor import is_direct, reads_by_descriptor
from shardc.cost.matmul import Product
from shardc.dialects.kern.size import hint

LITTLE_WORK, MUCH_WORK = 12, 140
"""Numbers of instructions per element of a sum from which on other values stay in registers beside the sum.

From the first number on it is one value, from the second on three (random numbers), because a thread loads
all its elements at once. Measured by compiling (decision 57).
"""
AMD_BESIDE = 3
"""Number of values in registers beside a sum on AMD, because LLVM computes several elements at once."""


def product_of(matmul: Matmul) -> Product:
    """Return the product, with the bytes read and the work done before and after it."""
    stored = [str((root.value or matmul.value).element) for root, _ in matmul.outputs]
    read = _read_after(matmul)
    around = [BYTES.get(type_, 8) for type_ in (*stored, *read)]
    (left_bytes, left_work), (right_bytes, right_work) = (_made(matmul, side) for side in (0, 1))
    after = [v for root in matmul.nest.roots[1:] for v, _ in matmul.roots.reads(root).between]
    work = instructions(after)
    return Product(
        *(hint(matmul.size(x)) for x in LETTERS),
        element_bytes=BYTES[matmul.element],
        result_bytes=sum(around),
        matrix=matmul.matrix,
        direct=all(is_direct(matmul, side) for side in (0, 1)),
        finish_bytes=1 if len(around) == 1 and around[0] <= 2 else 4,
        by_descriptor=reads_by_descriptor(matmul),
        left_bytes=left_bytes,
        right_bytes=right_bytes,
        left_work=left_work,
        right_work=right_work,
        result_work=work,
        beside=_beside(matmul, work, read),
    )


def _beside(matmul: Matmul, work: int, read: list[str]) -> float:
    """Return the number of registers in use beside each sum."""
    if matmul.target.backend == "hip":
        return AMD_BESIDE * (work >= LITTLE_WORK)
    parted = len(matmul.axes["m"]) > 1 and bool(read)  # offsets of the tensors read are computed, too
    values = 3 if work >= MUCH_WORK else int(work >= LITTLE_WORK or parted)
    return values + sum(BYTES.get(type_, 8) for type_ in read) / 4


def _made(matmul: Matmul, side: int) -> tuple[int, int]:
    """Return bytes read and instructions per element of a factor; 0 and 0 for a factor in memory."""
    generic, dims = matmul.generic, matmul.contraction.root.dims
    factor = (matmul.contraction.left, matmul.contraction.right)[side]
    operands = [(generic.operands[n], generic.operand_index(n, dims)) for n in factor.operands]
    reads = matmul.roots.reads_of(operands)
    if not reads.between:
        return 0, 0
    own, terms = matmul.axes["mn"[side]], matmul.axes["k"]
    touched = [(v, {a for p in index for a in p.axes}) for v, index in reads.ends if index]
    full = [v for v, axes in touched if axes.intersection(own) and axes.intersection(terms)]
    return sum(element_bytes(v.element) for v in full), instructions(v for v, _ in reads.between)


def _read_after(matmul: Matmul) -> list[str]:
    """Return the element types of result-sized tensors that are read with the result."""
    found: dict[Value, None] = {}
    for root in matmul.nest.roots[1:]:
        for value, index in matmul.roots.reads(root).ends:
            axes = {a for position in index or () for a in position.axes}
            whole = axes.intersection(matmul.axes["m"]) and axes.intersection(matmul.axes["n"])
            if value in matmul.memory.of and whole:
                found[value] = None
    return [str(value.element) for value in found]
