"""From an LLVM-dialect module to a shared object. The object file is MLIR's; x86-64 needs no linker of the system."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from shardc.backends.cpu.elf import link_object
from shardc.diagnostics.kernels import KernelNotLowered, LinkFailed, NoLinker
from shardc.runtime.team import openmp_path

LINKERS = ("ld", "ld.lld", "mold", "cc", "gcc", "clang")
OPTIMIZATION_LEVEL = 3


def system_linker() -> list[str] | None:
    """The command that links here: ``$SHARDC_LINKER``, if it is set; none on x86-64, which ``elf.py`` links for itself;
    elsewhere the first of :data:`LINKERS` on the path.

    Raises:
        NoLinker: one is needed and there is none.
    """
    if named := os.environ.get("SHARDC_LINKER"):
        return shlex.split(named)
    if platform.machine() == "x86_64":
        return None
    for name in LINKERS:
        if found := shutil.which(name):
            return [found]
    raise NoLinker(looked=", ".join(LINKERS))


def shared_object(module: ir.Module) -> bytes:
    """The shared object of ``module``, for this host. What is not defined in it is found in the process that loads it.

    Raises:
        KernelNotLowered: LLVM refused the module.
        NoLinker: the machine needs a linker and has none.
        LinkFailed: the linker ended with an error.
    """
    linker = system_linker()
    with tempfile.TemporaryDirectory(prefix="shardc-") as folder:
        object_file = Path(folder, "kernels.o")
        engine = ExecutionEngine(
            module, opt_level=OPTIMIZATION_LEVEL, shared_libs=[openmp_path()], enable_object_dump=True, enable_pic=True
        )
        engine.dump_to_object_file(str(object_file))
        if not object_file.exists():  # LLVM has said why on the standard error stream; its binding raises nothing
            raise KernelNotLowered(names=_names(module), reason="LLVM made no object file; its message stands above")
        return _linked(linker, object_file) if linker else link_object(object_file.read_bytes())


def _names(module: ir.Module) -> str:
    functions = (o for o in module.body if o.operation.name == "llvm.func" and len(o.regions[0].blocks))
    return ", ".join(ir.StringAttr(f.attributes["sym_name"]).value for f in functions)


def _linked(linker: list[str], object_file: Path) -> bytes:
    library = object_file.with_suffix(".so")
    command = [*linker, "-shared", "-o", str(library), str(object_file)]
    if Path(linker[0]).name.startswith(("cc", "gcc", "clang")):
        command.insert(1, "-nostdlib")
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LinkFailed(linker=" ".join(linker), code=error.errno, output=error.strerror) from error
    if ran.returncode:
        output = (ran.stderr or ran.stdout).strip()[:500]
        raise LinkFailed(linker=" ".join(linker), code=ran.returncode, output=output)
    return library.read_bytes()
