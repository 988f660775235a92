"""Cache of machine code of kernels that this process has compiled.

Kernels of a region are compiled for measurements. The program has the same kernels under other names, and its
library reuses their code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.cpu.emit.entries import INFO_SUFFIX, SIZES_SUFFIX, TARGET_SYMBOL
from shardc.backends.cpu.object_code.elf import ObjectFile

MOST = 1024
"""Maximum number of cached kernels. The oldest are dropped first."""
SUFFIXES = ("", INFO_SUFFIX, SIZES_SUFFIX)
"""Suffixes of a kernel's symbols in a library."""


@dataclass(frozen=True)
class _Code:
    """Object file with a kernel, and the kernel's name there."""

    content: bytes
    name: str


_kept: dict[tuple[str, str], _Code] = {}


def object_files(
    functions: Sequence[ir.Operation], target: str, make: Callable[[Sequence[ir.Operation]], bytes]
) -> list[ObjectFile]:
    """Return object files with the code of ``functions`` for ``target``.

    They are those of kernels that were compiled before, and one that ``make`` compiles from the others.
    Raises what ``make`` raises.
    """
    keys = {_name(function): (target, _text(function)) for function in functions}
    known = {key: code for key in keys.values() if (code := _kept.get(key)) is not None}
    new: dict[tuple[str, str], ir.Operation] = {}
    for function in functions:
        if (key := keys[_name(function)]) not in known:
            new.setdefault(key, function)
    if new:
        content = make(list(new.values()))
        known |= {key: _Code(content, _name(function)) for key, function in new.items()}
    _keep(known)
    return _files({name: known[key] for name, key in keys.items()})


def forget() -> None:
    """Clear the cache."""
    _kept.clear()


def _files(codes: dict[str, _Code]) -> list[ObjectFile]:
    """Return each object file once, with its names in ``codes``. The first also exports the target's name."""
    names: dict[bytes, dict[str, str]] = {}
    for name, code in codes.items():
        found = names.setdefault(code.content, {} if names else {TARGET_SYMBOL: TARGET_SYMBOL})
        found |= {name + suffix: code.name + suffix for suffix in SUFFIXES}
    return [ObjectFile(content, found) for content, found in names.items()]


def _keep(codes: dict[tuple[str, str], _Code]) -> None:
    for key, code in codes.items():
        _kept.pop(key, None)  # recently used entries are dropped last
        _kept[key] = code
    for key in list(_kept)[:-MOST]:
        _kept.pop(key, None)


def _name(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def _text(function: ir.Operation) -> str:
    """Return a function's text, which is equal for functions that differ only in their names."""
    return function.get_asm(enable_debug_info=False).replace(f"@{_name(function)}(", "@(", 1)
