"""The emitted program of a rank: its function, and the axes that its collectives span."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import pool
from .check import KERNEL_FOLDER, KERNELS, is_for_gpu
from .kernels import BadLibrary, Library
from .mesh import Axes
from .triton_kernels import Modules, interprets

ANYWHERE = (
    "run `shardc compile` again on this machine (or for its --target: cpu, sm_90, ...), or with --no-fuse (fuse=False) for "
    "a program without compiled kernels"
)


_numbers = itertools.count()


@dataclass(frozen=True)
class Program:
    """Each of ``steps(rank, *arguments)`` returns the results that replace no argument, the loss first.

    There is one, or one for each rank of a pipeline; ``actions`` are then what each runs in order, as ``2F0``, and
    ``stages`` the functions that do it, by their names in ``names``, the program's globals.
    """

    steps: tuple[Callable[..., tuple[Any, ...]], ...]
    groups: tuple[Axes, ...]
    actions: tuple[tuple[str, ...], ...]
    names: dict[str, Any]

    @property
    def stages(self) -> dict[str, Callable[..., tuple[Any, ...]]]:
        return {name: value for name, value in self.names.items() if name.startswith("stage_")}

    @staticmethod
    def load(path: Path, library: Kernels | None = None) -> Program:
        """From a file; Python keeps it compiled beside it, since a big model's takes seconds to compile.

        ``library`` has the kernels that it calls. Raises BadLibrary if one is not in it.
        """
        module = ModuleType("shardc_program")
        module.__file__ = str(path)
        module.__dict__.update(_given(library))
        SourceFileLoader("shardc_program", str(path)).exec_module(module)
        return Program._read(module.__dict__)

    @staticmethod
    def of(text: str, library: Kernels | None = None) -> Program:
        """From the program's text."""
        names, file = _given(library), f"<program {next(_numbers)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), names)
        return Program._read(names)

    @staticmethod
    def _read(names: dict[str, Any]) -> Program:
        actions = tuple(tuple(text.split()) for text in names.get("ACTIONS", ()))
        return Program(tuple(names.get("STEPS") or (names["step"],)), tuple(names["GROUPS"]), actions, names)


Kernels = Library | Modules
"""The kernels of a program: for CPUs, or Triton's."""


def library_of(folder: Path, manifest: Mapping[str, Any]) -> Kernels | None:
    """The compiled kernels of an artefact, None if it has none.
    Raises BadLibrary, BadTriton or BadDriver where they cannot run.
    """
    if not manifest["kernels"]:
        return None
    if is_for_gpu(dict(manifest)):
        return Modules(folder / KERNEL_FOLDER)
    try:
        return Library(folder / KERNELS)
    except BadLibrary as failure:
        raise BadLibrary(failure.what, str(folder / KERNELS), ANYWHERE) from None


def _given(library: Kernels | None) -> dict[str, Any]:
    """What a program finds among its globals."""
    if library is None:
        return {}
    empty = library.empty if isinstance(library, Modules) else pool.contiguous
    return {"kernel": library.kernel, "kernels": library.batch, "empty": empty}


def device_of(manifest: Mapping[str, Any]) -> str | None:
    """What a program's kernels run on, where that is not this rank's GPU: the CPU. None if the program runs anywhere."""
    is_elsewhere = is_for_gpu(dict(manifest)) and not interprets()
    return "cpu" if manifest["kernels"] and not is_elsewhere else None


def check_device(manifest: Mapping[str, Any], device: torch.device, rank: int) -> None:
    """Raises BadLibrary if the program has kernels that do not run on this rank's device."""
    if not manifest["kernels"]:
        return
    on_gpu = is_for_gpu(dict(manifest))
    if (device.type != "cpu") != on_gpu and not (on_gpu and interprets()):
        what = f"GPUs ({manifest['target']})" if on_gpu else "CPUs"
        raise BadLibrary(
            f"the program has compiled kernels for {what}, and rank {rank} is on {device}", hint=ANYWHERE
        )
