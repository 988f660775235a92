"""Write the folder of kernels that travels with a program: modules, ``figures.json``, binaries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from shardc.backends.triton.aot.compile import Compiled, Figures
from shardc.runtime.kernels.triton_kernels import CACHE, KEY


def write_folder(made: Sequence[Compiled], folder: Path) -> None:
    """Reduce a folder of :func:`compile_kernels` to the modules of ``made`` and Triton's cache entries."""
    kept = {Path(f.binary).parent.name: (Path(f.binary), Path(f.metadata)) for c in made for f in c.functions}
    names = {f"{c.kernel.name}.py" for c in made}
    for path in folder.iterdir():
        if path.is_dir() and path.name != CACHE:
            shutil.rmtree(path)
        elif path.is_file() and path.name not in names:
            path.unlink()
    for key in list((folder / CACHE).iterdir()):
        if key.name not in kept:
            shutil.rmtree(key)
            continue
        files = {KEY, *(path.name for path in kept[key.name])}
        for path in key.iterdir():
            if path.name not in files:
                path.unlink()
    figures = {c.kernel.name: [_figures(f) for f in c.functions] for c in made}
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")


def _figures(found: Figures) -> dict[str, object]:
    """What a function takes of the GPU."""
    return {name: value for name, value in vars(found).items() if name not in ("binary", "metadata")}
