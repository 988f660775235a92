"""The emitted program of a rank: its function, and the axes that its collectives span."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from . import pool
from .check import KERNELS
from .kernels import BadLibrary, Library
from .mesh import Axes

ANYWHERE = "run `shardc compile` again on this machine, or with --no-fuse (fuse=False) for a program without compiled kernels"


@dataclass(frozen=True)
class Program:
    """Each of ``steps(rank, *arguments)`` returns the results that replace no argument, the loss first.

    There is one, or one for each rank of a pipeline.
    """

    steps: tuple[Callable[..., tuple[Any, ...]], ...]
    groups: tuple[Axes, ...]

    @staticmethod
    def load(path: Path, library: Library | None = None) -> Program:
        """From a file; Python keeps it compiled beside it, since a big model's takes seconds to compile.

        ``library`` has the kernels that it calls. Raises BadLibrary if one is not in it.
        """
        module = ModuleType("shardc_program")
        module.__file__ = str(path)
        module.__dict__.update(_given(library))
        SourceFileLoader("shardc_program", str(path)).exec_module(module)
        return Program._read(module.__dict__)

    @staticmethod
    def of(text: str, library: Library | None = None) -> Program:
        """From the program's text."""
        names = _given(library)
        exec(compile(text, "<program>", "exec"), names)
        return Program._read(names)

    @staticmethod
    def _read(names: Mapping[str, Any]) -> Program:
        return Program(tuple(names.get("STEPS") or (names["step"],)), tuple(names["GROUPS"]))


def library_of(folder: Path, manifest: Mapping[str, Any]) -> Library | None:
    """The compiled kernels of an artefact, None if it has none. Raises BadLibrary where they cannot run."""
    if not manifest["kernels"]:
        return None
    try:
        return Library(folder / KERNELS)
    except BadLibrary as failure:
        raise BadLibrary(failure.what, str(folder / KERNELS), ANYWHERE) from None


def _given(library: Library | None) -> dict[str, Any]:
    """What a program finds among its globals."""
    return {} if library is None else {"kernel": library.kernel, "kernels": library.batch, "empty": pool.contiguous}
