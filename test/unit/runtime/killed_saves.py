"""Saves that are killed with SIGKILL, one after another: ``killed_saves.py FOLDER START`` prints a line each.

START is what was saved before, in ``FOLDER/start``. Each save is a process of its own, forked here; it dies
before the first, second, ... time that it touches the file system, until one dies no more. A line has the
version that the folder then loads as (0: no checkpoint), and the names in it after one more, whole save.

``killed_saves.py FOLDER START COUNT`` kills so many saves of larger tensors in another way: after any time.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from shardc.runtime.checkpoint.load import Checkpoint
from shardc.runtime.checkpoint.load import load as load_values
from shardc.runtime.checkpoint.save import save as save_values
from shardc.runtime.errors import BadCheckpoint

BROKEN = 99
LARGE = 4_000_000
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "fsync"}


def values(version: int, size: int = 1000) -> dict[str, torch.Tensor]:
    return {name: torch.full((size,), float(version)) for name in ("a", "b")}


def in_child(action: Callable[[], int | None]) -> int:
    """What the action returns, in a process of its own; negative if that was killed."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            code = action() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def loaded(folder: Path) -> int:
    """The version that the folder holds."""
    try:
        found = {name: torch.full(size, float(BROKEN)) for name, size in Checkpoint(folder).sizes.items()}
        load_values(folder, found)
    except BadCheckpoint:
        return 0
    versions = {float(value) for tensor in found.values() for value in tensor}
    return int(versions.pop()) if len(versions) == 1 else BROKEN


def save_and_die(folder: Path, after: int) -> None:
    """Ends this process at what would be change number ``after`` to the file system, counted from 0."""
    left = after

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        opened = event == "open" and str(arguments[0]).startswith(str(folder))
        if opened or event in CHANGES:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    fsync = os.fsync
    os.fsync = lambda handle: sys.audit("fsync") or fsync(handle)
    sys.addaudithook(hook)
    save_values(folder, values(2))


def start(folder: Path, kind: str) -> None:
    if kind == "flat":  # as earlier versions of shardc wrote it
        dcp.save(values(1), checkpoint_id=folder)
    elif kind == "replaced":
        save_values(folder, values(1))


def main(root: Path, kind: str, count: str = "") -> None:
    if count:
        at_any_time(root, kind, int(count))
    else:
        at_each_change(root, kind)


def at_any_time(root: Path, kind: str, count: int) -> None:
    in_child(lambda: start(root / "start", kind))
    started = time.monotonic()
    in_child(lambda: save_values(root / "whole", values(2, LARGE)))
    needed_s = time.monotonic() - started
    for number in range(count):
        folder = root / f"killed{number}"
        shutil.copytree(root / "start", folder)
        child = os.fork()
        if child == 0:
            save_values(folder, values(2, LARGE))
            os._exit(0)
        time.sleep(needed_s * 1.2 * number / count)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(in_child(lambda folder=folder: loaded(folder)), flush=True)


def at_each_change(root: Path, kind: str) -> None:
    in_child(lambda: start(root / "start", kind))
    code, point = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        folder = root / f"killed{point}"
        if kind != "none":
            shutil.copytree(root / "start", folder)
        code = in_child(lambda folder=folder, point=point: save_and_die(folder, point))
        version = in_child(lambda folder=folder: loaded(folder))
        in_child(lambda folder=folder: save_values(folder, values(3)))
        assert in_child(lambda folder=folder: loaded(folder)) == 3
        print(version, *sorted(path.name for path in folder.iterdir()), flush=True)
        point += 1
    assert code == 0, code


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
