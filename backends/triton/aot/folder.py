"""Writer of a program's folder of kernels: modules, ``figures.json`` and binaries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shardc.backends.triton.aot.compile import Compiled
from shardc.runtime.kernels.triton_binaries import KEY
from shardc.runtime.kernels.triton_kernels import CACHE

_PATHS = ("binary", "metadata")


def write_folder(made: Sequence[Compiled], folder: Path) -> None:
    """Reduce a folder of :func:`compile_kernels` to the modules of ``made`` and Triton's cache entries."""
    kept, figures = {folder / CACHE}, {}
    for c in made:
        kept.add(folder / f"{c.kernel.name}.py")
        for f in c.functions:
            entry = folder / CACHE / Path(f.binary).parent.name
            kept |= {entry, entry / KEY, entry / Path(f.binary).name, entry / Path(f.metadata).name}
        takes = [{n: value for n, value in vars(f).items() if n not in _PATHS} for f in c.functions]
        figures[c.kernel.name] = takes
    for path in sorted(folder.rglob("*"), reverse=True):  # the content of a folder before the folder
        if path not in kept:
            path.rmdir() if path.is_dir() else path.unlink()
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
