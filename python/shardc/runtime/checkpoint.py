"""Saving and loading the state with torch.distributed.checkpoint, onto the same or another mesh.

``.metadata`` says where in the folder each tensor is. A save writes its tensors into a folder of its own,
beside those of the save before, and is done when its ``.metadata`` has replaced the old one, in one step:
until then the old checkpoint is whole.
"""

import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.storage import WriteResult

from .errors import StateMismatch

METADATA = ".metadata"
"""The file that makes a folder a checkpoint of torch.distributed.checkpoint."""
_PAYLOAD = re.compile(r"shardc-save-[0-9a-f]{32}")
"""The folder of one save's tensors."""
_FLAT = re.compile(r"__\d+_\d+\.distcp")
"""A file of tensors where earlier versions of shardc wrote them: beside ``.metadata``."""


def save(folder: Path, values: Mapping[str, Tensor]) -> None:
    """Write ``values`` (DTensors, or plain tensors that are equal on all ranks). All ranks call it together.

    A checkpoint that is there is replaced at the end; whatever fails before leaves it as it is. What killed
    saves left is removed. Raises StateMismatch if the folder holds something else than a checkpoint.
    """
    if not is_for_checkpoints(folder):
        what = "the folder is not empty and holds no checkpoint"
        raise StateMismatch(what, str(folder), "name another folder")
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    if is_first:
        _remove_dead(folder)
    try:
        state_dict_saver.save(dict(values), storage_writer=_Writer(folder, _payload_name()))
    finally:
        if is_first:
            _remove_dead(folder)


def is_for_checkpoints(folder: Path) -> bool:
    """Whether a checkpoint may be written there: it holds a checkpoint, or nothing but dead saves."""
    if not folder.exists() or (folder / METADATA).exists():
        return True
    return all(_PAYLOAD.fullmatch(path.name) for path in folder.iterdir())


def load(folder: Path, values: Mapping[str, Tensor]) -> None:
    """Read ``values`` in place, each rank its own blocks. All ranks call it together.

    Raises StateMismatch, before anything is changed, if there is no checkpoint or it lacks one of them.
    """
    reader = FileSystemReader(folder)
    try:
        saved = reader.read_metadata().state_dict_metadata
    except (OSError, EOFError) as error:
        what = f"there is no readable checkpoint ({error})"
        raise StateMismatch(what, str(folder), "name a folder that `save` wrote") from None
    for name, value in values.items():
        if what := _misfit(name, value, saved.get(name)):
            raise StateMismatch(what, str(folder), "it is of another program")
    state_dict_loader.load(dict(values), storage_reader=reader)


def _misfit(name: str, value: Tensor, found: object) -> str | None:
    """What a checkpoint has amiss at ``name``, in words."""
    if not isinstance(found, TensorStorageMetadata):
        return f"the checkpoint has no tensor {name!r}"
    if tuple(found.size) == tuple(value.shape):
        return None
    return f"{name!r} has shape {list(found.size)} in the checkpoint and {list(value.shape)} in the program"


def number(value: float) -> Tensor:
    """A number as checkpoints hold it."""
    return torch.tensor(value, dtype=torch.float64)


class _Writer(FileSystemWriter):
    """Writes tensors into ``payload`` in the checkpoint's folder, and ``.metadata`` beside that."""

    def __init__(self, folder: Path, payload: str) -> None:
        super().__init__(folder / payload)
        self._folder, self._payload = folder, payload

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Runs on the first rank when all have written their tensors; the others wait for it."""
        super().finish(metadata, [[self._from_folder(result) for result in of_rank] for of_rank in results])
        written = self._folder / self._payload
        _flush(written)
        os.replace(written / METADATA, self._folder / METADATA)
        _flush(self._folder)

    def _from_folder(self, result: WriteResult) -> WriteResult:
        path = f"{self._payload}/{result.storage_data.relative_path}"
        return replace(result, storage_data=replace(result.storage_data, relative_path=path))


def _payload_name() -> str:
    """A new name, the same on all ranks."""
    names = [f"shardc-save-{uuid.uuid4().hex}"]
    if dist.is_initialized():
        dist.broadcast_object_list(names, src=0)
    return names[0]


def _remove_dead(folder: Path) -> None:
    """Removes the tensors of saves that ``.metadata`` does not name: killed, failed and replaced ones."""
    metadata = folder / METADATA
    content = metadata.read_bytes() if metadata.exists() else b""
    named = {name.decode() for name in re.findall(_PAYLOAD.pattern.encode(), content)}
    for path in folder.iterdir() if folder.exists() else ():
        if _PAYLOAD.fullmatch(path.name) and path.name not in named:
            shutil.rmtree(path, ignore_errors=True)
        elif named and _FLAT.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    """Puts the names of the folder's files on the disk, as ``fsync`` does for what is in them."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
