"""From an LLVM-dialect module to a shared object. The object file is MLIR's; the linker is the system's."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from shardc.diagnostics.kernels import LinkFailed, NoLinker
from shardc.runtime.kernels import openmp_path

LINKERS = ("ld", "ld.lld", "mold", "cc", "gcc", "clang")
OPTIMIZATION_LEVEL = 3


def find_linker() -> list[str]:
    """The command of the linker: ``$SHARDC_LINKER``, else the first of :data:`LINKERS` on the path.

    Raises:
        NoLinker: there is none.
    """
    named = os.environ.get("SHARDC_LINKER")
    if named:
        return shlex.split(named)
    for name in LINKERS:
        if found := shutil.which(name):
            return [found]
    raise NoLinker(looked=", ".join(LINKERS))


def shared_object(module: ir.Module) -> bytes:
    """The shared object of ``module``, for this host. Only what is not defined in it is left to the process.

    Raises:
        NoLinker: the machine has no linker.
        LinkFailed: the linker ended with an error.
    """
    linker = find_linker()
    with tempfile.TemporaryDirectory(prefix="shardc-") as folder:
        object_file, library = Path(folder, "kernels.o"), Path(folder, "kernels.so")
        engine = ExecutionEngine(
            module, opt_level=OPTIMIZATION_LEVEL, shared_libs=[openmp_path()], enable_object_dump=True, enable_pic=True
        )
        engine.dump_to_object_file(str(object_file))
        command = [*linker, "-shared", "-o", str(library), str(object_file)]
        if Path(linker[0]).name.startswith(("cc", "gcc", "clang")):
            command.insert(1, "-nostdlib")
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            output = (ran.stderr or ran.stdout).strip()[:500]
            raise LinkFailed(linker=" ".join(linker), code=ran.returncode, output=output)
        return library.read_bytes()
