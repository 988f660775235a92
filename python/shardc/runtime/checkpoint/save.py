"""Saving of a step's state with torch.distributed.checkpoint, at once or in the background."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future as TorchFuture

from ..check import Json, sha256
from ..errors import CheckpointNotSaved
from ..report import progress
from .folder import (
    METADATA,
    checkpoints_of,
    flush,
    is_for_checkpoints,
    is_for_series,
    keep_last,
    payload_name,
    read_record,
    remove_dead,
    step_folder,
    write_record,
)


@dataclass
class Saving:
    """Save that may still be running. ``folder``: the folder of this checkpoint."""

    folder: Path
    _future: Future[object] | None = None

    @property
    def is_done(self) -> bool:
        """True if the save has ended, successfully or not."""
        return self._future is None or self._future.done()

    def wait(self) -> None:
        """Wait for the save's end. Raises CheckpointNotSaved if it failed."""
        if self._future is not None:
            try:
                self._future.result()
            except (CheckpointException, OSError) as error:
                raise _not_saved(self.folder, error) from None


class Saver:
    """Saves of one step, at most one at a time. All ranks must call it together."""

    def __init__(self) -> None:
        self._last: Saving | None = None
        self._group: dist.ProcessGroup | None = None

    def save(
        self,
        folder: Path,
        values: Mapping[str, Tensor],
        record: Json,
        steps: int,
        keep: int | None,
        wait: bool,
    ) -> Saving:
        """Write ``values`` (DTensors, or tensors that are equal on all ranks) and ``record``.

        An existing checkpoint is replaced at the end; an earlier failure leaves it unchanged. The remains of
        killed saves are removed. ``keep``: save into a series, and keep that many of its checkpoints. Raises
        CheckpointNotSaved, also if the save before failed.
        """
        last, self._last = self._last, None
        if last is not None:
            last.wait()
        place = folder if keep is None else step_folder(folder, steps)
        _check_folder(folder, keep)
        if _is_first():
            remove_dead(place)
        writer = _Writer(place, _payload_name(), record, None if keep is None else (folder, keep))
        self._last = Saving(place, None if wait else self._start(dict(values), writer))
        if wait:
            _write(dict(values), writer)
        return self._last

    def _start(self, values: dict[str, Tensor], writer: _Writer) -> Future[object]:
        """Start the save in a background thread, with a process group of its own."""
        if dist.is_initialized() and self._group is None:
            group = dist.new_group(backend="gloo")
            assert isinstance(group, dist.ProcessGroup)
            self._group = group
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            started = state_dict_saver.async_save(values, storage_writer=writer, process_group=self._group)
        assert isinstance(started, Future)
        return started


def save(folder: Path, values: Mapping[str, Tensor], record: Json | None = None) -> None:
    """Write one checkpoint, and wait for its end. Raises CheckpointNotSaved."""
    Saver().save(folder, values, record or {}, 0, None, wait=True)


def _write(values: dict[str, Tensor], writer: _Writer) -> None:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            state_dict_saver.save(values, storage_writer=writer, planner=_Planner())
    except (CheckpointException, OSError) as error:
        raise _not_saved(writer.folder, error) from None
    finally:
        if _is_first():
            remove_dead(writer.folder)


class _Planner(DefaultSavePlanner):
    """PyTorch's planner, with reports of progress: how many of this rank's tensors are written."""

    _done, _count = 0, 0

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        plan = super().finish_plan(new_plan)
        self._count = len(plan.items)
        return plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        self._done += 1
        progress.step("tensors", self._done, self._count)
        return super().resolve_data(write_item)


@dataclass(frozen=True)
class _Written(WriteResult):
    """Result of writing a rank's part of a tensor, with the sizes and hashes of all the rank's files."""

    files: Mapping[str, Json]


class _Writer(FileSystemWriter):
    """Writer of tensors into the subfolder ``payload`` of a checkpoint, and of ``.metadata`` beside it."""

    def __init__(self, folder: Path, payload: str, record: Json, series: tuple[Path, int] | None) -> None:
        super().__init__(folder / payload)
        self.folder, self._payload, self._record, self._series = folder, payload, record, series

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[list[WriteResult]]:
        written = super().write_data(plan, planner).wait()
        names = sorted({result.storage_data.relative_path for result in written})
        files = {name: _file_entry(self.folder / self._payload / name) for name in names}
        done: TorchFuture[list[WriteResult]] = TorchFuture()
        done.set_result([_Written(r.index, r.size_in_bytes, r.storage_data, files) for r in written])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commit the checkpoint, on the first rank, when all ranks have written their tensors."""
        super().finish(metadata, [[self._from_folder(result) for result in of_rank] for of_rank in results])
        written = self.folder / self._payload
        files = {
            n: e
            for of_rank in results
            for r in of_rank
            if isinstance(r, _Written)
            for n, e in r.files.items()
        }
        said = {"number": self._number(), "metadata": sha256(written / METADATA), "files": files}
        write_record(written, {**said, **self._record})
        flush(written)
        os.replace(written / METADATA, self.folder / METADATA)
        flush(self.folder)
        remove_dead(self.folder)
        if self._series is not None:
            flush(self._series[0])
            keep_last(*self._series)

    def _number(self) -> int:
        """Return the checkpoint's number in its series."""
        older = [] if self._series is None else checkpoints_of(self._series[0])
        return 1 + (read_record(older[-1]).get("number", 0) if older else 0)

    def _from_folder(self, result: WriteResult) -> WriteResult:
        place = result.storage_data
        moved = replace(place, relative_path=f"{self._payload}/{place.relative_path}")
        return WriteResult(result.index, result.size_in_bytes, moved)


def _check_folder(folder: Path, keep: int | None) -> None:
    """Raise CheckpointNotSaved for a folder with other content than checkpoints."""
    if keep is not None and (not isinstance(keep, int) or keep < 1):
        raise CheckpointNotSaved(
            f"keep_last is {keep!r}", "keep_last=", "pass a number of checkpoints from 1 on"
        )
    if folder.exists() and not folder.is_dir():
        raise CheckpointNotSaved("it is not a folder", str(folder), "name another folder")
    if not (is_for_checkpoints(folder) if keep is None else is_for_series(folder)):
        kind = "checkpoint" if keep is None else "series of checkpoints"
        what = f"the folder is not empty and holds no {kind}"
        other = (
            "pass keep_last= to add to a series"
            if keep is None
            else "leave keep_last out to replace the one there"
        )
        raise CheckpointNotSaved(what, str(folder), f"name another folder, or {other}")


def _not_saved(folder: Path, error: BaseException) -> CheckpointNotSaved:
    """Return one error for all ranks, with the first cause."""
    cause, who = error, ""
    if isinstance(error, CheckpointException) and error.failures:
        rank, (cause, _) = min(error.failures.items())
        who = f"rank {rank}: "
    seen = cause
    while seen is not None and not isinstance(
        seen, OSError
    ):  # torch's writer hides a full disk behind its own
        seen = seen.__context__
    cause = seen or cause
    what = f"{who}{type(cause).__name__}: {cause}"
    hint = "see whether the disk is full, and save again: a checkpoint that was there is whole"
    return CheckpointNotSaved(what, str(folder), hint)


def _file_entry(path: Path) -> Json:
    return {"size": path.stat().st_size, "sha256": sha256(path)}


def _is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _payload_name() -> str:
    """Return a new name, the same on all ranks."""
    names = [payload_name()]
    if dist.is_initialized():
        dist.broadcast_object_list(names, src=0)
    return names[0]
