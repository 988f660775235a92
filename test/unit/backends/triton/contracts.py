"""Contracts that every compiled kernel must keep."""

from __future__ import annotations

import re

from shardc.backends.triton.aot.compile import Compiled, Figures
from shardc.cost.matmul import SPILL_BOUND

BARRIER_BYTES = 16
"""Of a thread's stack: ptxas keeps a barrier's state there in some matmuls, without a spill."""
SLOW_PATH_BYTES = 48
"""Of a thread's stack, where the vendor's library computes sines of huge arguments."""
SPILLS, SHARED, REGISTERS, MATRIX, LOCAL, WIDE = CONTRACTS = (
    "spills as priced",
    "shared memory",
    "registers",
    "matrix instructions",
    "no local memory",
    "16-byte accesses",
)


def violations(compiled: Compiled, *, whole: bool) -> dict[str, list[str]]:
    """For each contract that a kernel falls under, what breaks it, in words: nothing if it holds.

    ``whole``: all sizes are multiples of 16 bytes, so that a pointwise kernel can access 16 bytes a thread.
    """
    found: dict[str, list[str]] = {SPILLS: [], SHARED: [], REGISTERS: []}
    for f in compiled.functions:
        for contract, broken in _of(compiled, f, whole).items():
            found.setdefault(contract, []).extend([f"{f.name}: {broken}"] if broken else [])
    return found


def _of(compiled: Compiled, f: Figures, whole: bool) -> dict[str, str]:
    """What breaks each contract that a function falls under; empty texts where they hold."""
    target, kernel = compiled.target, compiled.kernel
    multiplies = has_products(kernel.text, f.name)
    slow = has_slow_path(kernel.text)
    allowed = BARRIER_BYTES + SPILL_BOUND * priced(compiled) if multiplies else SLOW_PATH_BYTES if slow else 0
    found = {
        SPILLS: f"{f.spill_bytes} bytes, {priced(compiled)} priced" if f.spill_bytes > allowed else "",
        SHARED: f"{f.shared_bytes} of {target.shared_bytes} bytes"
        if f.shared_bytes > target.shared_bytes
        else "",
        REGISTERS: f"{f.registers} of {target.registers}" if f.registers > target.registers else "",
    }
    if multiplies and '"ieee"' not in kernel.text and "out_dtype=tl.float64" not in kernel.text:
        found[MATRIX] = "" if f.matrix_ops else "none"
    if not multiplies and not slow:
        found[LOCAL] = f"{f.local_accesses} accesses" if f.local_accesses else ""
    form = next(function for function in kernel.functions if function.name == f.name)
    streams = (
        kernel.kind == "pointwise"
        and not kernel.flat
        and form.constants
        and len(f.aligned) == len(form.sizes)
    )
    if whole and streams:
        narrow = 2 * f.wide_stores < f.stores or (
            reads_as_it_writes(kernel.text, f.name) and not f.wide_loads
        )
        found[WIDE] = (
            f"{f.wide_loads} of {f.loads} loads, {f.wide_stores} of {f.stores} stores" if narrow else ""
        )
    return found


def priced(compiled: Compiled) -> int:
    """Bytes that a thread spills by the estimate of its kernel: of matmuls alone it may be any."""
    estimate = compiled.kernel.estimate
    return estimate.spill_bytes if estimate is not None else 0


def reads_as_it_writes(text: str, name: str) -> bool:
    """Whether a function reads elements where it writes others, and so in the same order."""
    body = re.search(rf"^def {name}\((.*?)(?=^@|^def |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    read, written = (set(re.findall(rf"tl\.{op}\(\w+ \+ (\w+)[,)]", body)) for op in ("load", "store"))
    return bool(read & written)


def has_slow_path(text: str) -> bool:
    """Sines and cosines of huge arguments are computed in local memory, by the vendor's library."""
    return "libdevice.sin(" in text or "libdevice.cos(" in text or "libdevice.tan(" in text


def has_products(text: str, name: str) -> bool:
    """Whether a function of a module, or one that it calls, multiplies matrices."""
    bodies = dict(re.findall(r"^def (\w+)\((.*?)(?=^@|^def |\Z)", text, re.MULTILINE | re.DOTALL))
    asked, seen = [name], set[str]()
    while asked:
        body = bodies[asked.pop()]
        if "tl.dot(" in body:
            return True
        called = [other for other in bodies if other not in seen and re.search(rf"\b{other}\(", body)]
        seen |= {*called}
        asked += called
    return False
