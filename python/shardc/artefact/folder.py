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

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

import shardc.runtime
from shardc.artefact.manifest import Manifest
from shardc.artefact.manifest_form import form_problem
from shardc.diagnostics.cli import UnwritableOutput
from shardc.diagnostics.runtime import BadArtefact, NotOurFolder
from shardc.runtime import check
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.kernels.loaders import Kernels, loader_of
from shardc.runtime.program import device_of, library_of
from shardc.text_files import writing

RUN = '''"""Trains with this folder, under torchrun: torchrun --nproc-per-node {ranks} {name}/run.py --steps 10

Only what stands in the folder's .py files runs: no bytecode beside them, and no module of another name.
"""

import os
import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a rank without a traceback
FOLDER = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [path for path in sys.path if os.path.realpath(path) != FOLDER]  # nobody's torch.py in here

from importlib.machinery import ModuleSpec, SourceFileLoader  # noqa: E402
from importlib.util import spec_from_file_location  # noqa: E402
from pathlib import Path  # noqa: E402
from types import CodeType, ModuleType  # noqa: E402
from typing import Any  # noqa: E402


class Source(SourceFileLoader):
    """Compiles a file's text, and looks for nothing else."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class Finder:
    """Finds the modules of runtime/."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "runtime":
            return None
        place = os.path.join(FOLDER, *name.split("."))
        inside = [place] if os.path.isdir(place) else None
        file = os.path.join(place, "__init__.py") if inside else place + ".py"
        if not os.path.isfile(file):
            raise ModuleNotFoundError(f"there is no {{file}}", name=name)
        return spec_from_file_location(
            name, file, loader=Source(name, file), submodule_search_locations=inside
        )


sys.meta_path.insert(0, Finder)

from runtime.run import main  # noqa: E402

main(Path(FOLDER))
'''  # noqa: E501

README = """A training step compiled by shardc for {ranks} ranks ({mesh}). It needs torch alone.
Run it: torchrun --nproc-per-node {ranks} run.py --steps 10   (use it: from runtime import TrainStep)

This folder is code: run.py, program.py, runtime/, kernels/ and kernels.so run on the machine that trains with
it. Run it only if you trust who gave it to you. shardc.json has the hash of each file, which says that the
folder is whole, not who made it. What a training leaves is not code: a checkpoint and a tuning database are
data, and loading them executes nothing. A cache folder of shardc (SHARDC_CACHE_DIR) is code, too.
"""


def write_artefact(
    folder: Path,
    levels: Mapping[str, str],
    program: str,
    manifest: Manifest,
    *,
    library: Path | None = None,
    plan: Mapping[str, object] | None = None,
    constants: Mapping[str, Tensor] | None = None,
    state: Mapping[str, Tensor | None] | None = None,
    batches: Sequence[Mapping[str, Tensor]] = (),
) -> None:
    """Write an artefact completely, or leave the disk unchanged if anything fails.

    An older artefact in ``folder`` is replaced.

    Args:
        folder: Folder to write.
        levels: MLIR text by level name (``1-global``).
        program: Python source that each rank runs.
        manifest: Description of ``program``.
        library: Compiled kernels, as a file or a folder.
        plan: Content of ``plan.json``.
        constants: Tensors that the step reads and never changes, by name.
        state: Whole tensors by argument name. Entries that are None or on the meta device are left out.
        batches: Example batches, each by argument name.

    Raises:
        NotOurFolder: The folder holds anything but an artefact.
        UnwritableOutput: The folder can't be written.
    """
    with _replaced(folder.absolute()) as new:
        _write_program(new, levels, program, manifest, library)
        (new / "plan.json").write_text(json.dumps(plan or {}, indent=1) + "\n")
        _write_words(new, folder.absolute().name, manifest)
        _save(new / "constants.safetensors", constants or {})
        if state is not None:
            _save(new / "state.safetensors", state)
        leaves = {f"{i}/{n}": t for i, batch in enumerate(batches) for n, t in batch.items()}
        _save(new / "batches.safetensors", leaves)
        files = {path.relative_to(new).as_posix(): path for path in sorted(new.rglob("*")) if path.is_file()}
        hashes = {
            name: {"size": path.stat().st_size, "sha256": check.sha256(path)} for name, path in files.items()
        }
        (new / check.MANIFEST).write_text(json.dumps({**manifest, "files": hashes}, indent=1) + "\n")


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """Yield a new folder to fill, and replace ``folder`` with it when the block ends.

    The old folder is removed only after the new one is in place. Raises NotOurFolder, UnwritableOutput.
    """
    check_folder(folder)
    new, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{name}") for name in ("new", "old"))
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        yield new
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UnwritableOutput(file=folder, problem=problem, where=str(folder)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def check_folder(folder: Path) -> None:
    """Raise NotOurFolder unless ``folder`` is missing, empty, or an artefact with nothing else inside.

    Raises UnwritableOutput if the folder can't be created.
    """
    with writing(folder):
        is_taken = folder.is_symlink() or (folder.exists() and not folder.is_dir())
        above = next((parent for parent in folder.parents if parent.exists()), folder)
    if folder.resolve() == Path.cwd():  # replacing it would leave the user's shell in a deleted folder
        raise NotOurFolder(folder=folder, problem="is the current folder", where=str(folder))
    if is_taken:
        raise NotOurFolder(folder=folder, problem="is not a folder", where=str(folder))
    if not above.is_dir() or not os.access(above, os.W_OK):
        problem = "is not a folder" if not above.is_dir() else "may not be written to"
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
            problem = f"holds {name}, which shardc did not write"
            raise NotOurFolder(folder=folder, problem=problem, where=str(path))


def read_manifest(folder: Path, model: str | None = None, *, unchecked: Sequence[str] = ()) -> Manifest:
    """Return the manifest of an artefact after checking its fields and files. Raises BadArtefact.

    ``model``: fingerprint of the model that it must have been compiled from. Files in ``unchecked`` must
    exist, but their hashes are not compared.
    """
    where = str(folder / check.MANIFEST)
    with _bad_artefact():
        manifest = check.read_manifest(folder)
        problem = form_problem(manifest)
        if problem is not None:
            raise BadArtefact(problem=f"the manifest is damaged: {problem}", hint=check.AGAIN, where=where)
        checked = {name: entry for name, entry in manifest["files"].items() if name not in unchecked}
        check.check_files(folder, {"files": checked})
    for name in unchecked:
        if not (folder / name).is_file():
            raise BadArtefact(problem=f"{name} is missing", hint=check.AGAIN, where=str(folder / name))
    if model is not None and manifest["model"] != model:
        other = f"({manifest['model'][:12]}, not {model[:12]})"
        problem = f"the artefact was compiled from another model or batch {other}"
        raise BadArtefact(problem=problem, hint="compile this model again", where=where)
    return manifest


def read_kernels(folder: Path, manifest: Manifest) -> Kernels | None:
    """Load the kernels of an artefact that run on the host; None if it has none.

    Raises BadArtefact if this machine cannot run them.
    """
    with _bad_artefact():
        return None if device_of(manifest) is None else library_of(folder, manifest)


@contextmanager
def _bad_artefact() -> Iterator[None]:
    """Turn the runtime's failures into BadArtefact."""
    try:
        yield
    except RuntimeFailure as failure:
        raise BadArtefact(problem=failure.what, hint=failure.hint, where=failure.where) from None


def _write_program(
    new: Path, levels: Mapping[str, str], program: str, manifest: Manifest, library: Path | None
) -> None:
    """Write the levels, the program, its kernels and the runtime."""
    (new / "levels").mkdir()
    for level, text in levels.items():
        (new / "levels" / f"{level}.mlir").write_text(text)
    (new / "program.py").write_text(program)
    loader, ignore = loader_of(manifest), shutil.ignore_patterns("__pycache__")
    if library is not None and loader is not None:
        if library.is_dir():
            shutil.copytree(library, new / loader.file, ignore=ignore)
        else:
            shutil.copyfile(library, new / loader.file)
    shutil.copytree(Path(str(shardc.runtime.__file__)).parent, new / "runtime", ignore=ignore)


def _write_words(new: Path, name: str, manifest: Manifest) -> None:
    space = [axis for axis in manifest["mesh"] if axis["kind"] == "space"]
    ranks = prod(axis["size"] for axis in space)
    mesh = " x ".join(f"{axis['name']} {axis['size']}" for axis in space)
    (new / "run.py").write_text(RUN.format(ranks=ranks, name=name))
    (new / "README").write_text(README.format(ranks=ranks, mesh=mesh))


def _save(path: Path, tensors: Mapping[str, Tensor | None]) -> None:
    """Save tensors as a safetensors file. The format forbids shared storage, so aliases are cloned."""
    seen: set[int] = set()
    ready: dict[str, Tensor] = {}
    present = {name: t for name, t in tensors.items() if t is not None and not t.is_meta}
    for name, tensor in present.items():
        value = tensor.detach().cpu().contiguous()
        address = value.untyped_storage().data_ptr()
        ready[name] = value.clone() if address in seen else value
        seen.add(address)
    save_file(ready, path)
