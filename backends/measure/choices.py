"""What measurements decided, beside the compiled kernels on disk: a small sealed file for each."""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager

from shardc.backends.cpu import cache as disk
from shardc.runtime.kernels import SEAL


def find_choice(key: str) -> str | None:
    """What was chosen for ``key``; None if nothing is known, or the file was damaged."""
    path = disk.find(_name(key))
    return None if path is None else json.loads(path.read_bytes()[: -len(SEAL) - 32])["choice"]


def keep_choice(key: str, choice: str) -> None:
    """For all later processes; where the folder cannot be written, for this one."""
    disk.keep(_name(key), json.dumps({"key": key, "choice": choice}).encode())


def deciding(key: str) -> AbstractContextManager[None]:
    """While one process decides on ``key``, others that want to wait."""
    return disk.alone(_name(key))


def _name(key: str) -> str:
    return f"choice-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
