"""``Task``: a kernel to tune on a target."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

NAME = "kernel"
"""Of the function of a task's text."""


@dataclass(frozen=True)
class Task:
    """One kernel: ``text`` is a module of ``extract`` with one function ``@kernel``, without locations and
    ``kern.config``. ``target`` is that of a database: ``cpu`` with the CPU's model, or a GPU's name
    (``sm_90``); ``threads`` those of torch's pool, 1 for GPUs. ``label`` is for people only.
    """

    text: str
    target: str
    threads: int = 1
    label: str = ""

    @cached_property
    def structure(self) -> str:
        """The hash of the kernel."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def key(self) -> str:
        """What a database finds it by, besides versions."""
        return f"{self.structure} {self.target} {self.threads}"
