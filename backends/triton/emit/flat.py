"""Kernels for any number of elements (``kern.flat``): for one tuple of tensors, or one launch for many.

An optimizer's update of all parameters is one such launch. A table has a row for each tuple: its first
program, its number of elements, and the address of each tensor. ``owner_ptr`` has the row of each program.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.backends.triton.emit.emitted import Jit
from shardc.backends.triton.emit.memory import Pointer
from shardc.backends.triton.emit.text import VALUES

HEAD = ["index = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)", "index_mask = index < elements"]
"""Lines that compute a program's elements."""

TEXT = '''@triton.jit
def _each({pointers}, elements, program, BLOCK: tl.constexpr):
    """BLOCK elements of each tensor."""
{body}


@triton.jit
def {name}({pointers}, elements, BLOCK: tl.constexpr):
    """All elements of one tuple of tensors."""
    _each({pointers}, elements, tl.program_id(0), BLOCK)


@triton.jit
def {name}_all(table_ptr, owner_ptr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    """All elements of the tensors in every row of a table. ALIGNED: addresses and numbers of elements are multiples of 16."""
    row_ptr = table_ptr + tl.load(owner_ptr + tl.program_id(0)) * {columns}
    first = tl.load(row_ptr)
    elements = tl.load(row_ptr + 1)
{loads}
    if ALIGNED:
        elements = tl.multiple_of(elements, 16)
{aligned}
    _each({pointers}, elements, tl.program_id(0) - first, BLOCK)


def launch({arguments}, elements):
    """Starts the kernel for one tuple of contiguous tensors, results last, of so many elements."""
    {name}[(triton.cdiv(elements, BLOCK),)]({arguments}, elements, BLOCK=BLOCK, num_warps={warps}, num_stages=2)


def launch_all(table, owner, aligned):
    """Starts the kernel for every row of the table, with a program for each entry of owner."""
    {name}_all[(owner.numel(),)](table, owner, BLOCK=BLOCK, ALIGNED=aligned, num_warps={warps}, num_stages=2)
'''  # noqa: E501


def functions_text(name: str, pointers: Sequence[Pointer], body: Sequence[str], warps: int) -> str:
    """Return the functions of a flat kernel, and their launchers."""
    types = [VALUES[p.element] for p in pointers]
    loads = [
        f"{p.name} = tl.load(row_ptr + {2 + n}).to(tl.pointer_type({type_}))"
        for n, (p, type_) in enumerate(zip(pointers, types, strict=True))
    ]
    return TEXT.format(
        name=name,
        warps=warps,
        columns=2 + len(pointers),
        body="\n".join(f"    {line}" for line in body),
        pointers=", ".join(p.name for p in pointers),
        arguments=", ".join(p.argument for p in pointers),
        loads="\n".join(f"    {line}" for line in loads),
        aligned="\n".join(f"        {p.name} = tl.multiple_of({p.name}, 16)" for p in pointers),
    )


def jits(name: str, pointers: Sequence[Pointer], block: int, warps: int) -> tuple[Jit, ...]:
    """Return both functions; the table's for multiples of 16 elements, and for other numbers."""
    one = {p.name: p.type for p in pointers} | {"elements": "i32", "BLOCK": "constexpr"}
    every = {"table_ptr": "*i64", "owner_ptr": "*i32", "BLOCK": "constexpr", "ALIGNED": "constexpr"}
    tables = ("table_ptr", "owner_ptr")
    return (
        Jit(name, one, {"BLOCK": block}, tuple(p.name for p in pointers), warps, 2, ("elements",)),
        *(Jit(f"{name}_all", every, {"BLOCK": block, "ALIGNED": a}, tables, warps, 2) for a in (True, False)),
    )
