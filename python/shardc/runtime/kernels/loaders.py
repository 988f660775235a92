"""How compiled kernels are opened, by what they are for: a line for each kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from ..check import Json
from .kernel_call import Batch, Checks, Kernel, Member, Outputs
from .library import Library
from .triton_kernels import Modules, kernel_device


class Kernels(Protocol):
    """The compiled kernels of a program; methods are those of :class:`~.library.Library`."""

    def kernel(
        self, name: str, outputs: Outputs, size: int | None = None, checks: Checks | None = None
    ) -> Kernel: ...

    def batch(self, name: str, members: Sequence[Member]) -> Batch: ...

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor: ...

    def workspace_bytes(self, name: str, sizes: Sequence[int] = ()) -> int: ...


@dataclass(frozen=True)
class Loader:
    """``prefixes`` begin the names of the targets, ``device`` is one of the kind whose tensors their kernels
    take, ``file`` is what holds them in an artefact (a folder, if it ``is_folder`` of a Python module
    each), ``load`` opens that.
    """

    prefixes: tuple[str, ...]
    file: str
    is_folder: bool
    load: Callable[[Path], Kernels]
    device: Callable[[], torch.device]


LOADERS = [
    Loader(("sm_", "gfx"), "kernels", True, Modules, kernel_device),
    Loader(("",), "kernels.so", False, Library, lambda: torch.device("cpu")),
]
"""The first that fits a target is its loader."""


def loader_of(manifest: Json) -> Loader | None:
    """What opens the kernels of an artefact; None if it has none."""
    if not manifest["kernels"]:
        return None
    return next(loader for loader in LOADERS if manifest["target"].startswith(loader.prefixes))
