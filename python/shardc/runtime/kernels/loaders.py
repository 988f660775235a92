"""Loaders of compiled kernels, one for each kind of target."""

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
    """Compiled kernels of a program, with the methods of :class:`~.library.Library`.

    A class of kernels on the host that inherits from this one needs only ``kernel``.
    """

    def kernel(
        self, name: str, outputs: Outputs, size: int | None = None, checks: Checks | None = None
    ) -> Kernel: ...

    def batch(self, name: str, members: Sequence[Member]) -> Batch:
        calls = [self.kernel(name, outputs, size) for size, outputs in members]
        return lambda *given: [call(*tensors) for call, tensors in zip(calls, given, strict=True)]

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    def workspace_bytes(self, name: str, sizes: Sequence[int] = ()) -> int:
        return 0


@dataclass(frozen=True)
class Loader:
    """Loader of kernels for a kind of target.

    ``prefixes``: prefixes of the targets' names. ``file``: name of the kernels' file in an artefact, or of
    their folder of Python modules, if ``is_folder``. ``load``: opens it. ``device``: returns the kind of
    device whose tensors the kernels take.
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
"""Loaders in order: the first one that matches a target is used."""


def loader_of(manifest: Json) -> Loader | None:
    """Return the loader of an artefact's kernels; None if it has none."""
    if not manifest["kernels"]:
        return None
    return next(loader for loader in LOADERS if manifest["target"].startswith(loader.prefixes))
