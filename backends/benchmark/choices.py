"""What measurements decided, beside the compiled kernels on disk: a small sealed file for each."""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass

from shardc.cache import disk


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the seconds that each candidate took which could be measured."""

    name: str
    seconds: dict[str, float]


def find_choice(key: str) -> Choice | None:
    """What was chosen for ``key``; None if nothing is known, or the file was damaged."""
    found = disk.read(_name(key))
    if found is None:
        return None
    kept = json.loads(found[1])
    return Choice(kept["choice"], kept.get("seconds", {}))


def keep_choice(key: str, choice: Choice) -> None:
    """For all later processes; where the folder cannot be written, for this one."""
    disk.keep(_name(key), json.dumps({"key": key, "choice": choice.name, "seconds": choice.seconds}).encode())


def deciding(key: str) -> AbstractContextManager[None]:
    """While one process decides on ``key``, others that want to wait."""
    return disk.alone(_name(key))


def _name(key: str) -> str:
    return f"choice-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
