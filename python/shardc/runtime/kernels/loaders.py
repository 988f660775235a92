"""How compiled kernels are opened, by what they are for: a line for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from .kernel_call import Output
from .library import Library
from .triton_kernels import Modules, interprets

Tensors = tuple[torch.Tensor, ...]


class Kernels(Protocol):
    """The compiled kernels of a program."""

    def kernel(
        self,
        name: str,
        outputs: Sequence[Output],
        size: int | None = None,
        checks: Mapping[int, str] | None = None,
    ) -> Callable[..., Tensors]:
        """The kernel ``name`` as a function of tensors, and of the integers that its symbolic sizes are in,
        that gives a tensor for each of ``outputs``. ``size`` is the number of elements where the kernel takes
        any; ``checks``: a result, an integer, is that of no wrong index, or the call raises IndexOutOfRange
        with this message.
        """

    def batch(
        self, name: str, members: Sequence[tuple[int, Sequence[Output]]]
    ) -> Callable[..., list[Tensors]]:
        """The kernel ``name``, of any number of elements, as one call for several tuples of its tensors."""

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Memory for a result that an op of ATen writes."""

    def workspace_bytes(self, name: str, sizes: Sequence[int] = ()) -> int:
        """What a call of the kernel ``name`` works in."""


@dataclass(frozen=True)
class Loader:
    """``prefixes`` begin the names of the targets, ``device`` is one of the kind whose tensors their kernels
    take, ``file`` is what holds them in an artefact (a folder, if it ``is_folder`` of a Python module
    each), ``load`` opens that.
    """

    prefixes: tuple[str, ...]
    file: str
    is_folder: bool
    load: Callable[[Path], Any]
    device: Callable[[], torch.device]


def _triton_device() -> torch.device:
    return torch.device("cpu" if interprets() else "cuda")


LOADERS = [
    Loader(("sm_", "gfx"), "kernels", True, Modules, _triton_device),
    Loader(("",), "kernels.so", False, Library, lambda: torch.device("cpu")),
]
"""The first that fits a target is its loader."""


def loader_of(manifest: Mapping[str, Any]) -> Loader | None:
    """What opens the kernels of an artefact; None if it has none."""
    if not manifest["kernels"]:
        return None
    return next(loader for loader in LOADERS if manifest["target"].startswith(loader.prefixes))
