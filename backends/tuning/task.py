"""``Task``: a kernel to tune on a target."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

NAME = "kernel"
"""Name of the function in a task's text."""


@dataclass(frozen=True)
class Task:
    """Kernel to tune.

    ``text``: a module of ``extract`` with one function ``@kernel``, without locations and ``kern.config``.
    ``target``: the target in databases: ``cpu`` with the CPU's model, or a GPU's name (``sm_90``).
    ``threads``: threads of torch's pool; 1 for GPUs. ``label``: text for users only.
    """

    text: str
    target: str
    threads: int = 1
    label: str = ""

    @cached_property
    def structure(self) -> str:
        """Hash of the kernel."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def key(self) -> str:
        """Key in a database, besides versions."""
        return f"{self.structure} {self.target} {self.threads}"
