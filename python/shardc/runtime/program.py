"""Emitted program of a rank: its function, and the axes that its collectives span."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType

import torch
from torch import Tensor

from .check import Json
from .comm.layout import Leaf
from .comm.mesh import Axes, Axis, Mesh
from .environment import PROFILE_RANGES
from .first_run import FirstRun, called_operators
from .kernels.library import BadLibrary
from .kernels.loaders import Kernels, loader_of
from .report.ranges import NAME, Ranges, with_ranges
from .source import listed

ANYWHERE = (
    "run `shardc compile` again on this machine (or for its --target: cpu, sm_90, ...), or with --no-fuse "
    "(fuse=False) for a program without compiled kernels"
)
Step = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Program:
    """Loaded program.

    ``steps``: the step functions, one, or one for each rank of a pipeline. ``steps[n](rank, *arguments)``
    returns the results that replace no argument, the loss first. ``actions``: for a pipeline, the actions of
    each rank in order, such as ``2F0``; ``stages``: the functions that run them, by name. ``names``: the
    program's globals. ``text``: its source.
    """

    steps: tuple[Step, ...]
    groups: tuple[Axes, ...]
    actions: tuple[tuple[str, ...], ...]
    names: Json
    first_run: FirstRun
    text: str

    @property
    def stages(self) -> dict[str, Step]:
        return {name: value for name, value in self.names.items() if name.startswith("stage_")}

    @staticmethod
    def load(path: Path, library: Kernels | None = None) -> Program:
        """Load a program from a file's text. (Python's own loader would prefer a ``.pyc`` beside it.)

        ``library``: the kernels that it calls. Raises BadLibrary if one is missing there.
        """
        text, module = path.read_text(), ModuleType("shardc_program")
        module.__file__ = str(path)
        module.__dict__.update(_given(library))
        exec(compile(_to_run(text), str(path), "exec"), module.__dict__)
        return Program._read(module.__dict__, text, library)

    @staticmethod
    def of(text: str, library: Kernels | None = None) -> Program:
        """Load a program from its text."""
        names = _given(library)
        exec(compile(_to_run(text), listed(text, "program"), "exec"), names)
        return Program._read(names, text, library)

    @staticmethod
    def _read(names: Json, text: str, library: Kernels | None) -> Program:
        actions = tuple(tuple(text.split()) for text in names.get("ACTIONS", ()))
        steps = tuple(names.get("STEPS") or (names["step"],))
        first_run = FirstRun(text, names, called_operators(names), strict=library is not None)
        return Program(steps, tuple(names["GROUPS"]), actions, names, first_run, text)

    def with_ranges(self, ranges: Callable[[str], None]) -> Program:
        """Return a copy of the program that calls ``ranges`` at each comment, and shares everything else."""
        names = {**self.names, NAME: ranges, "kernel": _shared, "kernels": _shared}
        exec(compile(with_ranges(self.text), listed(self.text, "program"), "exec"), names)
        steps = tuple(names.get("STEPS") or (names["step"],))
        own = [n for n, v in names.items() if isinstance(v, FunctionType) and v.__globals__ is names]
        names.update({n: v for n, v in self.names.items() if n not in own and n != NAME})
        return replace(self, steps=steps, names=names)


@dataclass(frozen=True)
class Part:
    """Part of a program for one rank: the ``number`` of its function and its arguments.

    ``axis``: the axis of pipeline stages, or None.
    """

    number: int
    arguments: list[Leaf]
    axis: Axis | None = None


def part_of(pipeline: Sequence[Json], leaves: Sequence[Leaf], mesh: Mesh, rank: int) -> Part:
    """Return the part for ``rank``. ``pipeline``: the manifest's field, empty or with one entry."""
    if not pipeline:
        return Part(0, list(leaves))
    (entry,) = pipeline
    axis = next((name, 1, size) for name, size in mesh.space if name == entry["name"])
    number = mesh.coordinate(rank, axis)
    named = {(leaf.role, leaf.name): leaf for leaf in leaves}
    return Part(number, [named[role, name] for role, name in entry["arguments"][number]], axis)


def library_of(folder: Path, manifest: Json) -> Kernels | None:
    """Load the compiled kernels of an artefact, if any. Raises BadLibrary, BadTriton or BadDriver."""
    loader = loader_of(manifest)
    if loader is None:
        return None
    path = folder / loader.file
    try:
        return loader.load(path)
    except BadLibrary as failure:
        raise BadLibrary(failure.what, str(path), ANYWHERE) from None


def _shared(*_: object, **__: object) -> None:
    """Placeholder for a kernel that the program has already loaded."""


def _to_run(text: str) -> str:
    """Return a program's text, with profiler ranges if they are switched on."""
    return with_ranges(text) if PROFILE_RANGES.get() else text


def _given(library: Kernels | None) -> Json:
    """Return the initial globals of a program."""
    if library is None:
        return {NAME: Ranges()}
    return {NAME: Ranges(), "kernel": library.kernel, "kernels": library.batch, "empty": library.empty}


def device_of(manifest: Json) -> str | None:
    """Return ``"cpu"`` if a program's kernels need CPU tensors; None if this rank's own device will do."""
    loader = loader_of(manifest)
    return "cpu" if loader is not None and loader.device().type == "cpu" else None


def check_device(manifest: Json, device: torch.device, rank: int) -> None:
    """Raise BadLibrary if the program has kernels that cannot run on this rank's device."""
    loader = loader_of(manifest)
    if loader is not None and device.type != loader.device().type:
        target = manifest["target"].partition(" ")[0]
        what = f"the program has compiled kernels for {target}, and rank {rank} is on {device}"
        raise BadLibrary(what, hint=ANYWHERE)
