"""Loading of a checkpoint, on the mesh that wrote it or another, after a check of its files.

Nothing in a checkpoint is executed. ``.metadata`` is a pickle; only the classes listed here are unpickled
from it. Tensors are read with torch's loader for weights only.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePosixPath

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem

from ..check import Json, sha256
from ..errors import StateMismatch
from ..report import progress
from .folder import CHANGED, METADATA, damaged, find_checkpoint, payloads_in, read_metadata, read_record

_METADATA_CLASSES = (
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
    "_MEM_FORMAT_ENCODING",
)
_ALLOWED = frozenset(
    {
        *(("torch.distributed.checkpoint.metadata", name) for name in _METADATA_CLASSES),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
        ("collections", "OrderedDict"),
    }
)
"""Classes that ``.metadata`` may refer to. Dtypes are allowed, too, and paths are read as pure paths."""


class Checkpoint:
    """Checkpoint in a folder, or the latest of its series. Raises BadCheckpoint if it is damaged.

    All ranks must construct it together. They share the work of checking the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = find_checkpoint(folder)
        content, self.record = read_metadata(self.folder), read_record(self.folder)
        self._check_files(content)
        self._reader = _Reader(self.folder, content)
        self._saved = self._reader.read_metadata().state_dict_metadata

    @property
    def sizes(self) -> dict[str, torch.Size]:
        """Shapes of the checkpoint's tensors, by name."""
        return {n: found.size for n, found in self._saved.items() if isinstance(found, TensorStorageMetadata)}

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Read ``values`` in place, each rank its own blocks. All ranks must call it together.

        Raises StateMismatch, before anything changes, if the checkpoint lacks one of them.
        """
        for name, value in values.items():
            if what := _misfit(name, value, self._saved.get(name)):
                raise StateMismatch(
                    what,
                    str(self.folder),
                    "load a checkpoint of this program, or compile the model that was saved",
                )
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "torch.distributed is disabled")
                state_dict_loader.load(dict(values), storage_reader=self._reader, planner=_Planner())
        except CheckpointException as error:
            cause = min(error.failures.items())[1][0] if error.failures else error
            why = f"a tensor can't be read ({type(cause).__name__}: {cause})"
            raise damaged(self.folder, why) from None

    def _check_files(self, content: bytes) -> None:
        """Compare files with their sizes and hashes, each rank a part. Earlier versions stored no hashes."""
        problem = None
        if self.record and hashlib.sha256(content).hexdigest() != self.record["metadata"]:
            problem = (METADATA, CHANGED)
        payload = min(payloads_in(content), default="")
        files: Mapping[str, Json] = self.record.get("files", {})
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        mine = sorted(files)[rank::world]
        for number, name in enumerate(mine):
            progress.step("files checked", number, len(mine))
            problem = problem or _problem_of(self.folder / payload / name, f"{payload}/{name}", files[name])
        if dist.is_initialized():
            every: list[tuple[str, str] | None] = [None] * world
            dist.all_gather_object(every, problem)
            problem = next(filter(None, every), None)
        if problem:
            raise damaged(self.folder / problem[0], problem[1])


def load(folder: Path, values: Mapping[str, Tensor]) -> None:
    """Read ``values`` from a checkpoint in place. Raises BadCheckpoint, StateMismatch."""
    Checkpoint(folder).load(values)


class _Planner(DefaultLoadPlanner):
    """PyTorch's planner, with reports of progress: how many of this rank's parts of tensors are read."""

    _done, _count = 0, 0

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        plan = super().finish_plan(new_plan)
        self._count = len(plan.items)
        return plan

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        self._done += 1
        progress.step("tensors", self._done, self._count)
        return super().resolve_tensor(read_item)


class _Reader(FileSystemReader):
    """PyTorch's reader, with an allow-list for ``.metadata``."""

    def __init__(self, folder: Path, content: bytes) -> None:
        super().__init__(folder)
        self._folder, self._content = folder, content

    def read_metadata(self, *_: object, **__: object) -> Metadata:
        try:
            found = _metadata_in(self._content)
        except Exception as error:  # unpickling damaged bytes raises anything
            raise damaged(self._folder / METADATA, f"{type(error).__name__}: {error}") from None
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


def _metadata_in(content: bytes) -> Metadata:
    """Unpickle ``.metadata``.

    Raises any exception for damage, and ValueError for files outside the folder.
    """
    found = _Unpickler(io.BytesIO(content)).load()
    if not isinstance(found, Metadata) or not _is_whole(found):
        raise ValueError(f"it holds no whole Metadata: {type(found).__name__}")
    for place in found.storage_data.values():
        parts = PurePosixPath(place.relative_path).parts
        if len(parts) > 2 or ".." in parts or parts[:1] == ("/",):
            raise ValueError(f"it names {place.relative_path}, outside of the folder")
    return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) in _ALLOWED or (module == "torch" and _is_dtype(name)):
            return super().find_class(module, name)
        if module.startswith("pathlib") and name in ("PosixPath", "WindowsPath"):
            return PurePosixPath
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint needs")


def _is_whole(value: object) -> bool:
    """Return True if all objects within a value have all their fields."""
    if isinstance(value, Mapping):
        return all(map(_is_whole, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_is_whole, value))
    return not is_dataclass(value) or all(
        hasattr(value, f.name) and _is_whole(getattr(value, f.name)) for f in fields(value)
    )


def _is_dtype(name: str) -> bool:
    return isinstance(getattr(torch, name, None), (torch.dtype, torch.layout))


def _problem_of(path: Path, name: str, entry: Json) -> tuple[str, str] | None:
    if not path.is_file():
        return name, "it is missing"
    if (size := path.stat().st_size) != entry["size"]:
        return name, f"it has {size} bytes of {entry['size']}"
    if sha256(path) != entry["sha256"]:
        return name, CHANGED
    return None


def _misfit(name: str, value: Tensor, found: object) -> str | None:
    """Return why a checkpoint's tensor does not fit ``value``; None if it fits."""
    if not isinstance(found, TensorStorageMetadata):
        return f"the checkpoint has no tensor {name!r}"
    if tuple(found.size) == tuple(value.shape):
        return None
    return f"{name!r} has shape {list(found.size)} in the checkpoint and {list(value.shape)} in the program"
