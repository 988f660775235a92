"""Linking of object files to a shared object. x86-64 needs no system linker."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from shardc.backends.cpu.object_code.elf import ObjectFile, link_objects
from shardc.cache.scratch import scratch
from shardc.diagnostics.kernels import LinkFailed, NoLinker
from shardc.environment import LINKER

LINKERS = ("ld", "ld.lld", "mold", "cc", "gcc", "clang")


def system_linker() -> list[str] | None:
    """Return the linker's command: ``$SHARDC_LINKER``, or the first of :data:`LINKERS` on the path.

    Return None on x86-64 without the variable, because ``elf.py`` links there. Raises NoLinker if there is
    none.
    """
    if named := LINKER.get():
        return named
    if platform.machine() == "x86_64":
        return None
    for name in LINKERS:
        if found := shutil.which(name):
            return [found]
    raise NoLinker(looked=", ".join(LINKERS))


def shared_object(objects: Sequence[ObjectFile], linker: list[str] | None) -> bytes:
    """Link object files to a shared object. Undefined symbols are resolved in the loading process.

    A system linker takes one object file, and exports all its names. Raises LinkFailed.
    """
    if linker is None:
        return link_objects(objects)
    (only,) = objects
    with scratch() as folder:
        object_file = Path(folder, "kernels.o")
        object_file.write_bytes(only.content)
        return _linked(linker, object_file)


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
