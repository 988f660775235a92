"""Errors of ``compile_step`` and the scripts that ``shardc compile`` reads."""

from __future__ import annotations

from typing import ClassVar

from shardc.diagnostics.base import ShardcError


class MeshIsNotTheWorld(ShardcError):
    """The mesh has another size than the number of processes that torchrun started."""

    template: ClassVar[str] = "the mesh {mesh} has {size} devices, but {world} processes run"
    hint: ClassVar[str] = "start it with torchrun --nproc-per-node {size}, or change the mesh"


class NotEqual(ShardcError):
    """``verify=True`` found that the compiled program differs from the single-device one."""

    template: ClassVar[str] = "the compiled program is not equal to the single-device program\n{table}"
    hint: ClassVar[str] = "please report this with the table: it is a bug in shardc"
    exit_code: ClassVar[int] = 1


class NoValues(ShardcError):
    """Values of a model on the meta device were asked for."""

    template: ClassVar[str] = "{name} has no values: the model is on the meta device"
    hint: ClassVar[str] = "build the model on a real device to check it or to save its state"


class BadScript(ShardcError):
    """A script for ``shardc compile`` that does not say what to compile."""

    template: ClassVar[str] = "{script} {problem}"
    hint: ClassVar[str] = "define build() that returns (model, optimizer, example_batch) or, with a loss function, four values"


class NotAnArtefact(ShardcError):
    """A path that ``explain`` can't read."""

    template: ClassVar[str] = "{path} is neither an artefact nor a module at level 3: {problem}"
    hint: ClassVar[str] = "give a folder that shardc compile wrote, or its levels/3-rank.mlir"
