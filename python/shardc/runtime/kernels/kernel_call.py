"""Python functions that call compiled kernels, with an overhead of about 1.5 us.

The machine code takes one pointer, to an array of the addresses of inputs, outputs and workspace. Arrays are
reused between calls, but no two calls use one at the same time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from .. import torch_private
from ..errors import IndexOutOfRange
from . import pool

Shape = tuple[int | str, ...]
Sizes = tuple[int, ...]
Output = tuple[Shape, torch.dtype] | int
"""Shape and dtype of a new tensor, or the number of the input whose memory the result reuses.

A size that differs between calls is an expression in the integers that follow the tensors: ``"n0 * 64"``.
"""

Outputs = Sequence[Output]
Member = tuple[int, Outputs]
"""Number of elements, and outputs, of one of several calls of a flat kernel."""
Checks = Mapping[int, str]
"""Number of an integer result -> message. If the result is not FINE, the call raises IndexOutOfRange with the
message, in which ``{}`` is replaced by the result.
"""
Kernel = Callable[..., tuple[Tensor, ...]]
Batch = Callable[..., list[tuple[Tensor, ...]]]
Parallel = Callable[[ctypes.c_void_p, int, int, int], None]
"""Function that runs machine code (code, address, threads, OpenMP flags)."""

KEPT_WORKSPACE_BYTES = 1 << 24
FINE = -(1 << 63)
"""Value of a checked result without an error."""
_of_thread = threading.local()


@dataclass(frozen=True)
class Figures:
    """Figures of a kernel: numbers of its ``inputs`` and of the integers after them (``sizes``), workspaces.

    Text is an expression in these integers.
    """

    inputs: int
    sizes: int
    max_threads: int | str
    """Largest useful number of threads. An expression may be less than 1."""
    shared_bytes: int | str
    thread_bytes: int | str


def caller(
    entry: Any,
    figures: Figures,
    outputs: Outputs,
    parallel: Parallel,
    size: int | None = None,
    checks: Checks | None = None,
) -> Kernel:
    """Return a function of CPU tensors and integers that calls ``entry`` and returns all ``outputs``.

    A result in an input's memory is that input itself, or a new tensor if the input was not contiguous.
    ``size``: number of elements for a flat kernel.
    """
    first = () if size is None else (1, size)
    new = sum(isinstance(o, tuple) for o in outputs)
    arrays = _Arrays(len(first) + figures.inputs + new + figures.sizes + 1)
    names = dict[str, object](entry=entry, function=ctypes.cast(entry, ctypes.c_void_p), parallel=parallel)
    names |= {"pop": arrays.free.pop, "new": arrays.new, "give_back": arrays.free.append}
    names |= {"threads_now": torch.get_num_threads, "workspace": _workspace}
    names |= {"pooled": pool.empty, "empty": _empty}
    figure: dict[str, str] = {}
    for name in ("max_threads", "shared_bytes", "thread_bytes"):
        value = getattr(figures, name)
        figure[name] = f"({value})" if isinstance(value, str) else name
        names[name] = value
    makers: list[str | int] = []
    for number, output in enumerate(outputs):
        if isinstance(output, int):
            makers.append(output)
            continue
        shape, dtype = output
        names[f"dtype{number}"], static = dtype, _static(shape)
        if len(static) < len(shape):
            strides = [_product(shape[d + 1 :]) for d in range(len(shape))]
            form = f"{_tuple(shape)}, {_tuple(strides)}, dtype{number}"
            large = f"(size := {_product((*shape, dtype.itemsize))}) >= {pool.POOLED_BYTES}"
            makers.append(f"pooled({form}, size) if {large} else empty({form})")
        else:
            makers.append(f"empty{number}(shape{number}, strides{number}, dtype{number})")
            names |= {f"shape{number}": static, f"strides{number}": _strides(static)}
            names[f"empty{number}"] = _maker(prod(static) * dtype.itemsize)
    threads = f"min({figure['max_threads']}, threads_now())" if figures.max_threads != 1 else ""
    if isinstance(figures.max_threads, str):
        threads = f"{threads} if {figures.max_threads} > 1 else 1"
    scratch = ""
    if (figures.shared_bytes, figures.thread_bytes) != (0, 0):
        scratch = f"{figure['shared_bytes']} + {'threads * ' if threads else ''}{figure['thread_bytes']}"
    checks = checks or {}
    names |= {f"message{number}": message for number, message in checks.items()} | {"check": check}
    counts = figures.inputs, figures.sizes
    return _writer(first, *counts, tuple(makers), threads, scratch, tuple(checks), tuple(names))(**names)


def check(found: int, message: str) -> None:
    """Raise IndexOutOfRange unless ``found`` is FINE."""
    if found != FINE:
        hint = "find the op that gives these indices; ranges are [0, size)"
        raise IndexOutOfRange(message.format(found), hint=hint)


@cache
def _writer(
    first: tuple[int, ...],
    inputs: int,
    sizes: int,
    makers: tuple[str | int, ...],
    threads: str,
    scratch: str,
    checked: tuple[int, ...],
    names: tuple[str, ...],
) -> Callable[..., Kernel]:
    """Compile the source of a call, once for all kernels of the same form.

    ``makers``: for each output, the expression that allocates it, or the number of its input. ``threads``:
    expression for the number of threads; empty for one thread. ``scratch``: expression for the workspace's
    bytes. ``checked``: outputs to check.
    """
    read, numbers = [f"a{i}" for i in range(inputs)], [f"n{i}" for i in range(sizes)]
    made = {number: f"r{number}" for number, maker in enumerate(makers) if isinstance(maker, str)}
    lines = [f"if not {a}.is_contiguous(): {a} = {a}.contiguous()" for a in read]
    lines += [f"{r} = {makers[i]}" for i, r in made.items()]
    if threads:
        lines.append(f"threads = {threads}")
    if scratch:
        lines.append(f"scratch = workspace({scratch})")
    addresses = [*map(str, first), *(f"{t}.data_ptr()" for t in (*read, *made.values()))]
    addresses += [*numbers, *(["scratch.data_ptr()"] if scratch else [])]
    lines += ["try: slots, address = held = pop()", "except IndexError: slots, address = held = new()"]
    lines += [f"slots[0:{len(addresses)}] = {_tuple(addresses)}"] if addresses else []
    shared = "parallel(function, address, threads, 0) if threads > 1 else " if threads else ""
    lines.append(f"{shared}entry(address)")
    lines += ["give_back(held)", *(f"check({made[n]}.item(), message{n})" for n in checked)]
    lines += [f"return {_tuple([read[m] if isinstance(m, int) else made[n] for n, m in enumerate(makers)])}"]
    body = "\n".join(f"        {line}" for line in lines)
    head = f"def write({', '.join(names)}):\n    def call({', '.join([*read, *numbers])}):\n"
    text, found = f"{head}{body}\n    return call\n", dict[str, Callable[..., Kernel]]()
    exec(compile(text, "<call of a kernel>", "exec"), found)
    return found["write"]


def _tuple(texts: Sequence[object]) -> str:
    return f"({', '.join(map(str, texts))}{',' if len(texts) == 1 else ''})"


def batch_caller(
    entry: Any, inputs: int, members: Sequence[Member], elements_per_thread: int, parallel: Parallel
) -> Batch:
    """Return a function that calls a flat kernel once for several tuples of tensors."""
    function = ctypes.cast(entry, ctypes.c_void_p)
    new = sum(isinstance(o, tuple) for o in members[0][1])
    arrays = _Arrays(1 + len(members) * (1 + inputs + new))
    max_threads = max(1, sum(size for size, _ in members) // elements_per_thread)
    forms = [[_form(o) for o in outputs] for _, outputs in members]
    sizes = [size for size, _ in members]

    def call(*given: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        addresses, results = [len(given)], []
        for size, outputs, tensors in zip(sizes, forms, given, strict=True):
            read = [t if t.is_contiguous() else t.contiguous() for t in tensors]
            made = [read[o] if isinstance(o, int) else o() for o in outputs]
            addresses.append(size)
            addresses += [t.data_ptr() for t in read]
            addresses += [t.data_ptr() for t, o in zip(made, outputs, strict=True) if not isinstance(o, int)]
            results.append(tuple(made))
        threads = min(max_threads, torch.get_num_threads())
        slots, address = arrays.new()
        slots[:] = addresses
        parallel(function, address, threads, 0) if threads > 1 else entry(address)
        return results

    return call


class _Arrays:
    """Arrays of ``size`` addresses, each with its own address. ``free``: arrays that no call uses.

    Popping from a list and appending to it are atomic, so calls of several threads never share an array.
    """

    def __init__(self, size: int) -> None:
        self.free: list[tuple[ctypes.Array[ctypes.c_void_p], int]] = []
        self._type = ctypes.c_void_p * size

    def new(self) -> tuple[ctypes.Array[ctypes.c_void_p], int]:
        made = self._type()
        return made, ctypes.addressof(made)


def _product(shape: Shape) -> str:
    return " * ".join(f"({n})" if isinstance(n, str) else str(n) for n in shape) or "1"


def _static(shape: Shape) -> Sizes:
    """Return the sizes that are numbers."""
    return tuple(n for n in shape if isinstance(n, int))


def _strides(shape: Sizes) -> Sizes:
    """Return the strides of a contiguous tensor."""
    return tuple(prod(max(n, 1) for n in shape[d + 1 :]) for d in range(len(shape)))


Maker = Callable[[Sizes, Sizes, torch.dtype], Tensor]
_empty: Maker = torch_private.optional("empty_strided_cpu") or (
    lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)
)


def _maker(size_bytes: int) -> Maker:
    """Return the allocator for a result of ``size_bytes``."""
    return partial(pool.empty, size_bytes=size_bytes) if size_bytes >= pool.POOLED_BYTES else _empty


def _form(output: Output) -> int | Callable[[], Tensor]:
    """Return the number of an input, or a function that makes a new tensor."""
    if isinstance(output, int):
        return output
    shape, dtype = _static(output[0]), output[1]
    return partial(_maker(prod(shape) * dtype.itemsize), shape, _strides(shape), dtype)


def _workspace(size_bytes: int) -> Tensor:
    """Return workspace for a call. Each thread reuses a small one, since its calls do not overlap."""
    if size_bytes > KEPT_WORKSPACE_BYTES:
        return pool.contiguous((size_bytes,), torch.uint8)
    kept: Tensor | None = getattr(_of_thread, "workspace", None)
    if kept is None or kept.nbytes < size_bytes:
        kept = _of_thread.workspace = pool.contiguous((size_bytes,), torch.uint8)
    return kept
