"""Writing and reading artefacts: the folders that ``shardc compile`` makes and torchrun runs.

shardc.json            the manifest
program.py             the rank program
kernels.so             its compiled kernels, if it has any for CPUs
kernels/               those for GPUs: a Triton module each, figures, and binaries in cache/
plan.json              the plan it follows
levels/*.mlir          the program at each level
constants.safetensors  tensors that the step reads and nobody changes
state.safetensors      initial parameters, optimizer state and buffers, whole (left out for models too large)
batches.safetensors    example batches, as `<number>/<leaf>`
runtime/               a copy of shardc.runtime, which imports torch alone
run.py                 trains: torchrun --nproc-per-node N run.py
README
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch_mlir import ir

import shardc.runtime
from shardc.artefact.manifest import ManifestFields, build_manifest
from shardc.artefact.manifest_form import form_problem
from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.cli import UnwritableOutput
from shardc.diagnostics.runtime import BadArtefact, NotOurFolder
from shardc.runtime import check
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.kernels.loaders import Kernels, loader_of
from shardc.runtime.program import device_of, library_of

RUN = '''"""Trains with this folder, under torchrun: torchrun --nproc-per-node {ranks} {name}/run.py --steps 10"""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from runtime.run import main  # noqa: E402

main(FOLDER)
'''  # noqa: E501

AGAIN = "compile again, or copy the folder again"

README = """A training step compiled by shardc for {ranks} ranks ({mesh}). It needs torch alone.
Run it: torchrun --nproc-per-node {ranks} run.py --steps 10   (use it: from runtime import TrainStep)
"""


def write_artefact(
    folder: Path,
    levels: Mapping[str, str],
    module: ir.Module,
    fields: ManifestFields,
    *,
    library: Path | None = None,
    target: str = "",
    plan: Mapping[str, Any] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
    state: Mapping[str, torch.Tensor | None] | None = None,
    batches: Sequence[Mapping[str, torch.Tensor]] = (),
) -> None:
    """Write an artefact: all of it, or, if anything fails, nothing.

    ``levels`` maps names (``1-global``) to MLIR text. ``module`` is what runs, of level 3, or of level 4 with
    the ``library`` of its kernels, a file or a folder, for ``target``. ``state`` and ``batches``
    hold whole tensors by the names of the program's arguments; entries that are None or on the meta device
    are left out. An older artefact in ``folder`` is replaced. Raises NotOurFolder if the folder holds
    anything else, UnwritableOutput if it can't be written.
    """
    folder = folder.absolute()
    check_folder(folder)
    new = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _write_files(
            new, folder.name, levels, module, fields, library, target, plan, constants, state, batches
        )
        _put_in_place(new, folder)
    except (OSError, SafetensorError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UnwritableOutput(file=folder, problem=problem, where=str(folder)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def check_folder(folder: Path) -> None:
    """Raises NotOurFolder unless ``folder`` is missing, empty, or an artefact with nothing else inside.

    Raises UnwritableOutput if no folder can be made there.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise NotOurFolder(folder=folder, problem="is no folder", where=str(folder))
    above = next((parent for parent in folder.parents if parent.exists()), folder)
    if not above.is_dir() or not os.access(above, os.W_OK):
        problem = "is no folder" if not above.is_dir() else "may not be written to"
        raise UnwritableOutput(file=folder, problem=f"{above} {problem}", where=str(folder))
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        ours = {check.MANIFEST, *check.read_manifest(folder)["files"]}
    except RuntimeFailure:
        raise NotOurFolder(folder=folder, problem="holds no artefact of shardc", where=str(folder)) from None
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in ours and "__pycache__" not in path.parts:
            raise NotOurFolder(
                folder=folder, problem=f"holds {name}, which shardc did not write", where=str(path)
            )


def read_manifest(folder: Path, model: str | None = None, *, unchecked: Sequence[str] = ()) -> dict[str, Any]:
    """The manifest of an artefact, its form and its files checked. Raises BadArtefact.

    ``model``: the fingerprint that it must have been compiled from. ``unchecked`` files need only be there.
    """
    try:
        manifest = check.read_manifest(folder)
        problem = form_problem(manifest)
        if problem is not None:
            where = str(folder / check.MANIFEST)
            raise BadArtefact(problem=f"the manifest is damaged: {problem}", hint=AGAIN, where=where)
        checked = {name: entry for name, entry in manifest["files"].items() if name not in unchecked}
        check.check_files(folder, {"files": checked})
    except RuntimeFailure as failure:
        raise BadArtefact(problem=failure.what, hint=failure.hint, where=failure.where) from None
    for name in unchecked:
        if not (folder / name).is_file():
            raise BadArtefact(problem=f"{name} is missing", hint=AGAIN, where=str(folder / name))
    if model is not None and manifest["model"] != model:
        raise BadArtefact(
            problem=f"the artefact was compiled from another model or batch ({manifest['model'][:12]}, not "
            f"{model[:12]})",
            hint="compile this model again",
            where=str(folder / check.MANIFEST),
        )
    return manifest


def read_kernels(folder: Path, manifest: Mapping[str, Any]) -> Kernels | None:
    """The compiled kernels of an artefact that run on the host, None if it has none.
    Raises BadArtefact where this machine cannot run them.
    """
    if device_of(manifest) is None:
        return None
    try:
        return library_of(folder, manifest)
    except RuntimeFailure as failure:
        raise BadArtefact(problem=failure.what, hint=failure.hint, where=failure.where) from None


def _write_files(
    new: Path,
    name: str,
    levels: Mapping[str, str],
    module: ir.Module,
    fields: ManifestFields,
    library: Path | None,
    target: str,
    plan: Mapping[str, Any] | None,
    constants: Mapping[str, torch.Tensor] | None,
    state: Mapping[str, torch.Tensor | None] | None,
    batches: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    manifest = build_manifest(module, fields, {}, target)
    space = [axis for axis in manifest["mesh"] if axis["kind"] == "space"]
    words = {
        "ranks": torch.Size([axis["size"] for axis in space]).numel(),
        "mesh": " x ".join(f"{axis['name']} {axis['size']}" for axis in space),
        "name": name,
    }
    (new / "levels").mkdir(parents=True)
    for level, text in levels.items():
        (new / "levels" / f"{level}.mlir").write_text(text)
    (new / "program.py").write_text(emit_program(module))
    loader = loader_of(manifest)
    if library is not None and loader is not None:
        if library.is_dir():
            shutil.copytree(library, new / loader.file, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(library, new / loader.file)
    (new / "plan.json").write_text(json.dumps(plan or {}, indent=1) + "\n")
    (new / "run.py").write_text(RUN.format(**words))
    (new / "README").write_text(README.format(**words))
    _save(new / "constants.safetensors", constants or {})
    if state is not None:
        _save(new / "state.safetensors", state)
    _save(
        new / "batches.safetensors",
        {f"{i}/{n}": t for i, batch in enumerate(batches) for n, t in batch.items()},
    )
    source = Path(str(shardc.runtime.__file__)).parent
    shutil.copytree(source, new / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
    manifest["files"] = {
        path.relative_to(new).as_posix(): _entry(path) for path in sorted(new.rglob("*")) if path.is_file()
    }
    (new / check.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _entry(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": check.sha256(path)}


def _save(path: Path, tensors: Mapping[str, torch.Tensor | None]) -> None:
    """Tensors as a safetensors file, each with memory of its own, as the format asks."""
    seen: set[int] = set()
    ready: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if tensor is None or tensor.is_meta:
            continue
        value = tensor.detach().cpu().contiguous()
        address = value.untyped_storage().data_ptr()
        ready[name] = value.clone() if address in seen else value
        seen.add(address)
    save_file(ready, path)


def _put_in_place(new: Path, folder: Path) -> None:
    """Move the new folder to where the old one was; the old one goes only when the new one stands."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
