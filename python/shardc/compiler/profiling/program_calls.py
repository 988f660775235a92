"""The calls of a rank's program, in order, and its peak memory, found by running it without data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.backends.body.extract import extract_kernels, kernels
from shardc.backends.torch.description import describe_program
from shardc.backends.torch.emit import emit_program
from shardc.backends.torch.memory.dry_run import META, Peak, Workspace, dry_run
from shardc.compiler.memory import AloneGroups, distinct_parts
from shardc.cost.profile import ProgramCall
from shardc.dialects.kern.kernel import kernel_name
from shardc.runtime.check import Json
from shardc.runtime.comm.collectives import Rank
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.kernels.loaders import Kernels
from shardc.runtime.program import Part
from shardc.runtime.report.calls import AROUND, Calls

_KERNEL = re.compile(r"^kernel (\w+)\(")


@dataclass(frozen=True)
class Played:
    """Calls of a rank's program, and the peak memory of its tensors."""

    calls: Sequence[ProgramCall]
    peak: Peak


def played_module(module: ir.Module) -> list[Played]:
    """Run each distinct program of a module of level 3 or 4 without data. Raises PeakUnknown."""
    return played_programs(emit_program(module), describe_program(module), kernel_names(module))


def played_programs(
    text: str, described: Json, names: Mapping[str, str], library: Kernels | None = None
) -> list[Played]:
    """Run each distinct program of a text without data.

    ``described``: the mesh, arguments and pipeline, as in a manifest. ``names``: the kernels' names in a
    profile. Without the ``library`` of its kernels their workspaces are not counted. Raises PeakUnknown for a
    call that does not run without data.
    """
    mesh, parts = distinct_parts(described)
    entry = "step_{}" if described["pipeline"] else "step"
    workspace = None if library is None else library.workspace_bytes
    return [_played(text, entry.format(n), mesh, *parts[n], names, workspace) for n in sorted(parts)]


def kernel_names(module: ir.Module) -> dict[str, str]:
    """Return each kernel's name in a profile: a hash of what it computes, independent of the program."""
    return {kernel_name(kernel): _digest(kernel) for kernel in kernels(module)}


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a call's text with the kernel's name in a profile."""
    found = _KERNEL.match(text)
    name = None if found is None else names.get(found[1])
    return text if found is None or name is None else f"kernel {name}({text[found.end() :]}"


def _digest(kernel: ir.Operation) -> str:
    text = extract_kernels([kernel]).operation.get_asm(enable_debug_info=False)
    return hashlib.sha256(text.replace(kernel_name(kernel), "kernel").encode()).hexdigest()[:32]


def _played(
    text: str,
    entry: str,
    mesh: Mesh,
    rank: int,
    part: Part,
    names: Mapping[str, str],
    workspace: Workspace | None,
) -> Played:
    calls = Calls()

    def arguments() -> Sequence[object]:
        shapes = ((leaf.local_shape(mesh), leaf.dtype) for leaf in part.arguments)
        given = [torch.empty(shape, dtype=dtype, device=META) for shape, dtype in shapes]
        return [calls.rank(Rank(mesh, rank, META, AloneGroups(mesh, rank))), *given]

    peak = dry_run(text, entry, arguments, workspace, around=calls.of, in_calls=True)
    found = [ProgramCall(renamed(call.text, names), call.axes) for call in calls.found]
    return Played([*found, ProgramCall(AROUND)], peak)
