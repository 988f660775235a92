"""Saving and loading the state with torch.distributed.checkpoint, onto the same or another mesh."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from .errors import StateMismatch


def save(folder: Path, values: Mapping[str, Tensor]) -> None:
    """Write ``values`` (DTensors, or plain tensors that are equal on all ranks). All ranks call it together.

    Raises StateMismatch if the folder holds something else than a checkpoint.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / ".metadata").exists():
        raise StateMismatch(
            "the folder is not empty and holds no checkpoint", str(folder), "name another folder"
        )
    dcp.save(dict(values), checkpoint_id=folder)


def load(folder: Path, values: Mapping[str, Tensor]) -> None:
    """Read ``values`` in place, each rank its own blocks. All ranks call it together.

    Raises StateMismatch, before anything is changed, if there is no checkpoint or it lacks one of them.
    """
    reader = dcp.FileSystemReader(folder)
    try:
        saved = reader.read_metadata().state_dict_metadata
    except (OSError, EOFError) as error:
        raise StateMismatch(
            f"there is no readable checkpoint ({error})", str(folder), "name a folder that `save` wrote"
        ) from None
    for name, value in values.items():
        found = saved.get(name)
        if not isinstance(found, TensorStorageMetadata):
            raise StateMismatch(
                f"the checkpoint has no tensor {name!r}", str(folder), "it is of another program"
            )
        if tuple(found.size) != tuple(value.shape):
            raise StateMismatch(
                f"{name!r} has shape {list(found.size)} in the checkpoint and {list(value.shape)} in the program",
                str(folder), "it is of another program",
            )  # fmt: skip
    dcp.load(dict(values), storage_reader=reader)


def number(value: float) -> Tensor:
    """A number as checkpoints hold it."""
    return torch.tensor(value, dtype=torch.float64)
