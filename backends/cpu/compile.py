"""``build_library``: compiles every ``kern.kernel`` of a module to one shared object, cached on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from torch_mlir import ir

from shardc.backends.benchmark.host import host_model
from shardc.backends.body.extract import extract, kernels
from shardc.backends.body.handlers import handlers
from shardc.backends.body.read_graph import read_graph
from shardc.backends.body.structured import read_structured
from shardc.backends.cpu.emit.buffers import Emitted
from shardc.backends.cpu.emit.emit import emit
from shardc.backends.cpu.emit.entries import entries
from shardc.backends.cpu.emit.loops import BARRIER
from shardc.backends.cpu.host import check_target, has_tables, scales_by_powers_of_two, target, without
from shardc.backends.cpu.object_code.elf import ObjectFile
from shardc.backends.cpu.object_code.kept import object_files
from shardc.backends.cpu.object_code.link import shared_object, system_linker
from shardc.backends.cpu.object_code.lower import SCALES, TABLES
from shardc.backends.cpu.object_code.object_code import object_code
from shardc.cache import disk as library_cache
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern import generic
from shardc.runtime.report import progress

WRITERS = "shardc.backends.cpu.attention", "shardc.backends.cpu.convolution", "shardc.backends.cpu.emit"
"""Packages with the emitters of structured ops of ``kern``."""


def build_library(module: ir.Module) -> Path:
    """Return the shared object with every ``kern.kernel`` of ``module``, compiled if it is not in the cache.

    Open it with :class:`shardc.runtime.kernels.library.Library`. The cache key has the content of the
    kernels, the host's CPU, and the versions of MLIR and of this backend. If several processes ask, one
    compiles.

    Raises:
        UnsupportedTarget: This CPU is not supported.
        KernelNotSupported: The CPU backend does not support an op in a body.
        KernelNotLowered, NoLinker, LinkFailed: Generating machine code failed.
    """
    functions = extract(module)
    name = f"kernels-{library_key(functions)}.so"
    found = library_cache.find(name)
    if found is not None:
        return found
    with library_cache.alone(name):
        return library_cache.find(name) or library_cache.keep(name, compile_functions(functions))


def compile_ahead(modules: Sequence[ir.Module]) -> None:
    """Compile the kernels of several modules of one context together, for later :func:`build_library` calls.

    It does nothing if a system linker is used, which takes only one object file. Raises what
    :func:`build_library` raises.
    """
    extracted = [extract(module) for module in modules if kernels(module)]
    todo = [e for e in extracted if library_cache.find(f"kernels-{library_key(e)}.so") is None]
    if not todo or system_linker() is not None:
        return
    check_target()
    every = [function.operation for functions in todo for function in functions.body]
    with every[0].context:
        for number, function in enumerate(every):  # modules may use the same names
            name = ir.StringAttr(function.attributes["sym_name"]).value
            function.attributes["sym_name"] = ir.StringAttr.get(f"{name}_{number}")
    object_files(every, target(), lambda new: _object_of(new, object_code))


def failing(module: ir.Module) -> dict[str, Exception]:
    """Return the kernels of ``module`` that fail to compile alone: name -> error."""
    errors: dict[str, Exception] = {}
    with module.context, ir.Location.unknown():
        for function in extract(module).body:
            single = ir.Module.create()
            function.operation.clone(ip=ir.InsertionPoint(single.body))
            try:
                compile_functions(single)
            except Exception as error:  # a compiler bug in one kernel must not affect the others
                errors[ir.StringAttr(function.attributes["sym_name"]).value] = error
    return errors


def compile_functions(
    functions: ir.Module, make: Callable[[ir.Module, str, str], bytes] = object_code
) -> bytes:
    """Compile a module of :func:`shardc.backends.body.extract.extract` to a shared object.

    ``make``: ``object_code``, or ``object_code_here``. If shardc links by itself, kernels that this process
    has compiled before are not compiled again. Raises what :func:`build_library` raises.
    """
    check_target()
    linker, every = system_linker(), [function.operation for function in functions.body]
    if linker is not None or make is not object_code:
        return shared_object([ObjectFile(_object_of(every, make))], linker)
    return shared_object(object_files(every, target(), lambda new: _object_of(new, make)), linker)


def _object_of(functions: Sequence[ir.Operation], make: Callable[[ir.Module, str, str], bytes]) -> bytes:
    """Compile one or more functions to an object file."""
    with functions[0].context, ir.Location.unknown():
        module = ir.Module.create()
        if scales_by_powers_of_two():
            module.operation.attributes[SCALES] = ir.UnitAttr.get()
        if has_tables():
            module.operation.attributes[TABLES] = ir.UnitAttr.get()
        emitted = []
        for number, function in enumerate(functions):
            progress.step("loops of kernels", number + 1, len(functions))
            emitted.append(_emit(function, module))
        progress.step(f"machine code of {len(functions)} kernels")
        module.body.append(ir.Operation.parse(f"func.func private @{BARRIER}()"))
        return make(module, entries(emitted, target()), without())


def _emit(function: ir.Operation, module: ir.Module) -> Emitted:
    body = read_structured(function)
    if body is None:
        return emit(read_graph(function), module)
    write = handlers(*WRITERS).get(body.op.name)
    if write is None:
        raise KernelNotSupported(what=body.op.name)
    return write(body, module)


def library_key(functions: ir.Module) -> str:
    """Return the cache key of the library of ``functions``."""
    parts = [functions.operation.get_asm(enable_debug_info=False), target(), host_model(), versions()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def versions() -> str:
    """Return MLIR's version, and a hash of the code generator's sources."""
    digest = hashlib.sha256()
    own = Path(__file__).parent
    for file in sorted([*own.rglob("*.py"), *own.with_name("body").glob("*.py"), Path(generic.__file__)]):
        digest.update(file.read_bytes())
    return f"{version('torch-mlir')} {digest.hexdigest()}"
