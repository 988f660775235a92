"""The calls of an artefact's programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardc.artefact.folder import read_kernels
from shardc.artefact.manifest import Manifest
from shardc.commands.module_file import read_module
from shardc.compiler.profiling.program_calls import Played, kernel_names, played_programs
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.kernels.loaders import loader_of


@dataclass(frozen=True)
class FolderCalls:
    """Artefact: its mesh, each distinct program, and the kernels' names in a profile."""

    path: Path
    mesh: Mesh
    ranks: Sequence[Played]
    names: dict[str, str]

    @staticmethod
    def read(path: Path, manifest: Manifest) -> FolderCalls:
        """Read an artefact's programs. Raises BadArtefact, PeakUnknown."""
        level = path / "levels" / "4-kernel.mlir"
        names = kernel_names(read_module(level)) if level.is_file() else {}
        text, library = (path / "program.py").read_text(), read_kernels(path, manifest)
        ranks = played_programs(text, manifest, names, library)
        return FolderCalls(path, Mesh.read(manifest["mesh"]), ranks, names)


def is_for_cpus(manifest: Manifest) -> bool:
    """Return whether a program runs on CPUs: it has CPU kernels or none."""
    loader = loader_of(manifest)
    return loader is None or loader.device().type == "cpu"
