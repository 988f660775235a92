"""LLVM IR of each kernel's entry, which the thread pool calls, and of a library's data on its kernels."""

from __future__ import annotations

import json
from itertools import count

from shardc.backends.cpu.emit.buffers import ALIGNMENT_BYTES, Buffers, Emitted
from shardc.dialects.kern.size import AnySize, Size, evaluate, hint

INFO_SUFFIX = "_info"
SIZES_SUFFIX = "_sizes"
TARGET_SYMBOL = "shardc_target"


def entries(kernels: list[Emitted], target: str) -> str:
    """Return an LLVM dialect module with the entries, the kernels' figures and the name of the target.

    Entry ``name(void **pointers)`` takes inputs, outputs, symbolic sizes and workspace. The entry of a flat
    kernel takes a count, and that many times the number of elements, inputs and outputs. ``name_info`` has
    six
    i64: the numbers of inputs and of outputs with their own memory, the maximum of useful threads, the bytes
    of shared and of per-thread workspace, and for flat kernels the number of elements per useful thread (else
    0). ``name_sizes``, only for kernels with symbolic sizes, is JSON with their number, and with the work and
    the workspace bytes in terms of them. Bodies, ``name_body``, are only declared.
    """
    functions = [_flat_entry(k) if k.elements_per_thread else _plain_entry(k) for k in kernels]
    pairs = zip(functions, map(_info, kernels), strict=True)
    parts = [part for pair in pairs for part in pair]
    named = f'llvm.mlir.global constant @{TARGET_SYMBOL}("{target}\\00") {{addr_space = 0 : i32}}'
    return "\n".join(["module {", _DECLARATIONS, named, *parts, "}"])


_DECLARATIONS = """
llvm.func @omp_get_thread_num() -> i32
llvm.func @omp_get_num_threads() -> i32"""


_THREADS = """
  %thread32 = llvm.call @omp_get_thread_num() : () -> i32
  %threads32 = llvm.call @omp_get_num_threads() : () -> i32
  %thread = llvm.sext %thread32 : i32 to i64
  %threads = llvm.sext %threads32 : i32 to i64"""


def _slot(number: int, address: str, name: str, type_: str) -> list[str]:
    """Return lines that load the value ``name`` from a position in a list of pointers."""
    place = f"  %slot{number} = llvm.getelementptr {address} : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr"
    return [place, f"  {name} = llvm.load %slot{number} : !llvm.ptr -> {type_}"]


def _flat_entry(kernel: Emitted) -> str:
    pointers = kernel.inputs + kernel.outputs
    loads = (_slot(at, f"%call[{at + 1}]", f"%p{at}", "!llvm.ptr") for at in range(pointers))
    slots = "\n".join(line for load in loads for line in load)
    types = ", ".join(["i64"] * 3 + ["!llvm.ptr"] * pointers)
    arguments = ", ".join(["%thread", "%threads", "%size", *(f"%p{at}" for at in range(pointers))])
    return f"""llvm.func @{kernel.name}(%pointers: !llvm.ptr) {{{_THREADS}
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %width = llvm.mlir.constant({pointers + 1} : i64) : i64
  %count = llvm.load %pointers : !llvm.ptr -> i64
  llvm.br ^head(%zero : i64)
^head(%number: i64):
  %more = llvm.icmp "slt" %number, %count : i64
  llvm.cond_br %more, ^call, ^end
^call:
  %before = llvm.mul %number, %width : i64
  %first = llvm.add %before, %one : i64
  %call = llvm.getelementptr %pointers[%first] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %size = llvm.load %call : !llvm.ptr -> i64
{slots}
  llvm.call @{kernel.name}_body({arguments}) : ({types}) -> ()
  %next = llvm.add %number, %one : i64
  llvm.br ^head(%next : i64)
^end:
  llvm.return
}}
llvm.func @{kernel.name}_body({types})"""


class _Arithmetic:
    """Builder of lines of i64 arithmetic. ``symbols``: names of the sizes."""

    def __init__(self, symbols: list[str]) -> None:
        self.lines: list[str] = []
        self._symbols, self._names = symbols, count()

    def number(self, value: int) -> str:
        return self._line(f"llvm.mlir.constant({value} : i64) : i64")

    def plus(self, a: str, b: str) -> str:
        return self._line(f"llvm.add {a}, {b} : i64")

    def times(self, a: str, b: str) -> str:
        return self._line(f"llvm.mul {a}, {b} : i64")

    def bytes(self, size: AnySize) -> str:
        """Return the bytes of a buffer. Symbolic ones are rounded up here."""
        value = evaluate(size, lambda s: self._symbols[s.number], self.number, self.times, self.plus)
        if not isinstance(size, Size):
            return value
        more = self.plus(value, self.number(ALIGNMENT_BYTES - 1))
        return self._line(f"llvm.and {more}, {self.number(-ALIGNMENT_BYTES)} : i64")

    def total(self, sizes: list[AnySize]) -> str:
        total = self.number(0)
        for size in sizes:
            total = self.plus(total, self.bytes(size))
        return total

    def at(self, base: str, offset: str) -> str:
        return self._line(f"llvm.getelementptr {base}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")

    def _line(self, text: str) -> str:
        name = f"%v{next(self._names)}"
        self.lines.append(f"  {name} = {text}")
        return name


def _plain_entry(kernel: Emitted) -> str:
    buffers, pointers = kernel.buffers, kernel.inputs + kernel.outputs
    lines = [f"llvm.func @{kernel.name}(%pointers: !llvm.ptr) {{"]
    slots = [f"%p{at}" for at in range(pointers)] + [f"%s{at}" for at in range(kernel.sizes)] + ["%workspace"]
    for at, slot in enumerate(slots):
        lines += _slot(at, f"%pointers[{at}]", slot, "i64" if slot.startswith("%s") else "!llvm.ptr")
    arithmetic = _Arithmetic(slots[pointers:-1])
    work = _workspace(arithmetic, buffers) if buffers.kinds else []
    arguments = ["%thread", "%threads", *slots[pointers:-1], *slots[:pointers], *work]
    plain = 2 + kernel.sizes
    types = ", ".join(["i64"] * plain + ["!llvm.ptr"] * (len(arguments) - plain))
    call = f"  llvm.call @{kernel.name}_body({', '.join(arguments)}) : ({types}) -> ()"
    lines += [_THREADS, *arithmetic.lines, call, "  llvm.return", "}"]
    return "\n".join([*lines, f"llvm.func @{kernel.name}_body({types})"])


def _workspace(arithmetic: _Arithmetic, buffers: Buffers) -> list[str]:
    """Return the start of each buffer: shared ones, each thread's private ones, then partial ones."""
    privates = arithmetic.at("%workspace", arithmetic.total(buffers.sizes["shared"]))
    private = arithmetic.total(buffers.sizes["private"])
    mine = arithmetic.at(privates, arithmetic.times("%thread", private))
    found = []
    for kind, number in buffers.kinds:
        before = arithmetic.total(buffers.sizes[kind][:number])
        if kind == "partial":
            offset = arithmetic.times("%threads", arithmetic.plus(private, before))
            found.append(arithmetic.at(privates, offset))
        else:
            found.append(arithmetic.at("%workspace" if kind == "shared" else mine, before))
    return found


def _info(kernel: Emitted) -> str:
    sizes = kernel.buffers.sizes
    shared, thread = _bound(sizes["shared"]), _bound(sizes["private"] + sizes["partial"])
    bytes_ = [hint(shared), hint(thread)]
    figures = [kernel.inputs, kernel.outputs, kernel.max_threads, *bytes_, kernel.elements_per_thread]
    name, value = f"@{kernel.name}{INFO_SUFFIX}", f"dense<{figures}> : tensor<{len(figures)}xi64>"
    text = f"llvm.mlir.global external constant {name}({value}) : !llvm.array<{len(figures)} x i64>"
    if not kernel.sizes:
        return text
    terms = {"work": _terms(kernel.work), "shared": _terms(shared), "thread": _terms(thread)}
    found = json.dumps({"sizes": kernel.sizes, "work_per_thread": kernel.work_per_thread, **terms})
    found, name = found.replace('"', "\\22"), f"{kernel.name}{SIZES_SUFFIX}"
    return f'{text}\nllvm.mlir.global external constant @{name}("{found}\\00") {{addr_space = 0 : i32}}'


def _bound(sizes: list[AnySize]) -> AnySize:
    """Return an upper bound on the bytes of all buffers together."""
    return sum(sizes) + ALIGNMENT_BYTES * sum(isinstance(size, Size) for size in sizes)


def _terms(size: AnySize) -> list[list[int]]:
    """Return a size as products of a factor and symbol numbers: ``[[64, 0, 1]]`` for 64 * s0 * s1."""
    terms = size.terms if isinstance(size, Size) else (((), size),)
    return [[factor, *(s.number for s in monomial)] for monomial, factor in terms]
