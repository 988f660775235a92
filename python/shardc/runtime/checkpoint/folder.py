"""Folders of checkpoints: a single checkpoint, or a series in subfolders ``step-<number>``."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from ..check import Json
from ..errors import BadCheckpoint

METADATA = ".metadata"
"""File whose presence makes a folder a checkpoint of torch.distributed.checkpoint."""
RECORD = "shardc.json"
"""File of a save's record, beside its tensors."""
VERSION = 1
_PAYLOAD = re.compile(rf"shardc-save-[0-9a-f]{{32}}(?:-{VERSION})?")
"""Name of the folder of a save's tensors. Without a version at its end, the folder has no record."""
CHANGED = "it was changed since it was saved: its SHA-256 differs"
_FLAT = re.compile(r"__\d+_\d+\.distcp")
"""Name of a file of tensors of earlier shardc versions, which wrote them beside ``.metadata``."""
_STEP = re.compile(r"step-\d{8,}")
"""Name of the folder of a checkpoint in a series."""


def is_for_checkpoints(folder: Path) -> bool:
    """Return True if a checkpoint may be written there.

    The folder has a checkpoint, is empty, or has only remains of unfinished saves.
    """
    if not folder.exists() or (folder / METADATA).exists():
        return True
    return all(_PAYLOAD.fullmatch(path.name) for path in folder.iterdir())


def is_for_series(folder: Path) -> bool:
    """Return True if a series may be written there: the folder has one, or is empty."""
    return not folder.exists() or all(_STEP.fullmatch(path.name) for path in folder.iterdir())


def step_folder(series: Path, steps_done: int) -> Path:
    """Return the folder of a series' checkpoint after ``steps_done`` steps."""
    return series / f"step-{steps_done:08}"


def checkpoints_of(series: Path) -> list[Path]:
    """Return the complete checkpoints of a series, in the order of their saves. Raises BadCheckpoint."""
    found = [p for p in _steps_of(series) if (p / METADATA).exists()]
    return sorted(found, key=lambda path: read_record(path).get("number", 0))


def holds_checkpoint(folder: Path) -> bool:
    """Return True if a folder exists and has a checkpoint, or a series with one."""
    return (folder / METADATA).is_file() or any((p / METADATA).is_file() for p in folder.glob("step-*"))


def find_checkpoint(folder: Path) -> Path:
    """Return the folder, if it is a checkpoint, or the latest one of its series. Raises BadCheckpoint."""
    if (folder / METADATA).is_file():
        return folder
    if found := checkpoints_of(folder):
        return found[-1]
    raise BadCheckpoint("it holds no checkpoint", str(folder), "name a folder that `save_checkpoint` wrote")


def read_metadata(checkpoint: Path) -> bytes:
    """Read the bytes of a checkpoint's ``.metadata``. Raises BadCheckpoint."""
    try:
        return (checkpoint / METADATA).read_bytes()
    except OSError as error:
        raise damaged(checkpoint / METADATA, f"it can't be read ({error.strerror})") from None


def read_record(checkpoint: Path) -> Json:
    """Read the record of a checkpoint's save; empty for earlier versions. Raises BadCheckpoint."""
    name = min(payloads_in(read_metadata(checkpoint)), default="")
    if not name.endswith(f"-{VERSION}"):
        return {}
    path = checkpoint / name / RECORD
    try:
        found = json.loads(path.read_bytes())
        record, digest = found["record"], found["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, f"it can't be read ({type(error).__name__}: {error})") from None
    if digest_of(record) != digest:
        raise damaged(path, CHANGED)
    return record


def write_record(folder: Path, record: Json) -> None:
    """Write the record of a save beside its tensors, and flush it to disk."""
    with (folder / RECORD).open("w") as file:
        json.dump({"sha256": digest_of(record), "record": record}, file)
        file.flush()
        os.fsync(file.fileno())


def digest_of(record: Json) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def payload_name() -> str:
    """Return a new name for the folder of a save's tensors."""
    return f"shardc-save-{uuid.uuid4().hex}-{VERSION}"


def damaged(path: Path, why: str) -> BadCheckpoint:
    """Return the error for an unusable file of a checkpoint."""
    hint = "copy the checkpoint again, or load an earlier one of the series by the name of its folder"
    return BadCheckpoint(f"{path.name} is damaged: {why}", str(path), hint)


def remove_dead(checkpoint: Path) -> None:
    """Remove the tensors of saves that ``.metadata`` does not refer to: killed, failed and replaced saves."""
    metadata = checkpoint / METADATA
    named = payloads_in(metadata.read_bytes() if metadata.exists() else b"")
    for path in checkpoint.iterdir() if checkpoint.exists() else ():
        if _PAYLOAD.fullmatch(path.name) and path.name not in named:
            shutil.rmtree(path, ignore_errors=True)
        elif named and _FLAT.fullmatch(path.name):
            path.unlink(missing_ok=True)


def keep_last(series: Path, count: int) -> None:
    """Remove all but the last ``count`` checkpoints of a series, and the remains of killed saves."""
    kept = checkpoints_of(series)[-count:]
    for path in _steps_of(series):
        if path not in kept:
            (path / METADATA).unlink(missing_ok=True)
            remove_dead(path)
            if not any(path.iterdir()):  # keep a folder that has files of the user
                path.rmdir()


def flush(folder: Path) -> None:
    """Flush the folder's entries to disk, as ``fsync`` does for the content of files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _steps_of(series: Path) -> Iterator[Path]:
    if series.is_dir():
        yield from (path for path in sorted(series.iterdir()) if _STEP.fullmatch(path.name))


def payloads_in(metadata: bytes) -> set[str]:
    """Return the folders of tensors that ``.metadata`` refers to: one, or none for earlier versions."""
    return {name.decode() for name in re.findall(_PAYLOAD.pattern.encode(), metadata)}
