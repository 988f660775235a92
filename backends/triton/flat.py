"""Kernels of any number of elements (``kern.flat``): one launch for many tuples of tensors, found through a table of addresses.

An optimizer's update of all parameters is such a launch. The table has a row for each tuple: the first of its programs, its
number of elements, and the address of each tensor; ``owner_ptr`` names the row of each program.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.backends.triton.memory import Pointer
from shardc.backends.triton.text import TYPES

_TYPES = {"fp16": "tl.float16", "bf16": "tl.bfloat16", "fp32": "tl.float32", "fp64": "tl.float64", "i1": "tl.int1",
          "i32": "tl.int32", "i64": "tl.int64"}  # fmt: skip

LAUNCH = '''def launch_all(table, owner, aligned):
    """Starts the kernel for every row of the table: a program for each entry of owner.

    aligned: all addresses and numbers of elements are multiples of 16.
    """
    {name}[(owner.numel(),)](table, owner, BLOCK=BLOCK, ALIGNED=aligned, num_warps={warps})
'''


def head(pointers: Sequence[Pointer]) -> list[str]:
    """The lines that find a program's tensors and elements."""
    lines = [
        f"row_ptr = table_ptr + tl.load(owner_ptr + tl.program_id(0)) * {2 + len(pointers)}",
        "elements = tl.load(row_ptr + 1)",
    ]
    for number, pointer in enumerate(pointers):
        type_ = _TYPES[TYPES[pointer.element]]
        lines.append(f"{pointer.name} = tl.load(row_ptr + {2 + number}).to(tl.pointer_type({type_}))")
    lines.append("if ALIGNED:")
    lines.append("    elements = tl.multiple_of(elements, 16)")
    lines += [f"    {p.name} = tl.multiple_of({p.name}, 16)" for p in pointers]
    lines.append("index = (tl.program_id(0) - tl.load(row_ptr)) * BLOCK + tl.arange(0, BLOCK)")
    lines.append("index_mask = index < elements")
    return lines
