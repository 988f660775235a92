"""Interface of a target, for which kernels are compiled.

Each target has a folder beside this file and a line in ``registry.py``. Code outside its folder never asks
which target it is. Modules of targets import MLIR and compilers only within methods, since a start from the
caches does not need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from shardc.backends.benchmark.clocks import Clock, HostClock
from shardc.cache import disk
from shardc.passes.fuse.grouping.capabilities import Capabilities

if TYPE_CHECKING:
    import torch
    from torch_mlir import ir

    from shardc.backends.estimate import Estimated
    from shardc.backends.tuning.target import Tuning
    from shardc.runtime.kernels.loaders import Kernels


@dataclass(frozen=True)
class CompiledKernels:
    """Compiled kernels of a module.

    ``path``: file or folder for :meth:`Target.load`; None if there are no kernels. ``errors``: kernels that
    failed to compile, by name. If there are any, ``path`` is not valid.
    """

    path: Path | None = None
    errors: Mapping[str, Exception] = field(default_factory=dict)


class Target(ABC):
    """Target of kernels.

    ``name``: its name for users and artefacts. ``backend``: its name in the registry, and that of
    its target if it has only one.
    """

    backend: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()
    """Ops that fusion may put into kernels."""
    pooled: ClassVar[bool] = False
    """True if large results of ATen calls are in memory of the runtime's pool."""
    is_modelled: ClassVar[bool] = False
    """True if a cost model estimates programs that cannot be measured."""
    runs_on_host: ClassVar[bool] = False
    """True if kernels take host tensors, so that the oracle can run them."""
    compiles_ahead: ClassVar[bool] = False
    """True if compiling the kernels of several programs together is faster."""

    @property
    def name(self) -> str:
        """Name, such as ``cpu`` or ``sm_90``."""
        return self.backend

    @classmethod
    def names(cls) -> Sequence[str]:
        """Return the names of this backend's targets."""
        return (cls.backend,)

    @classmethod
    def named(cls, name: str) -> Target | None:
        """Return the target of that name; None if it is not of this backend."""
        return cls() if name in cls.names() else None

    @classmethod
    def of_device(cls, device: torch.device) -> Target | None:
        """Return the target of a device. Return None for another backend's device, or with a warning.

        A target that is no device's own is used only if it is named.
        """
        return None

    def on_this_machine(self) -> str:
        """Return a line for ``shardc doctor`` on this machine's compiler and device."""
        return self.described()

    def check(self) -> None:  # noqa: B027 -- most need nothing
        """Raise ShardcError or RuntimeFailure if this machine cannot compile kernels."""

    @abstractmethod
    def compile(self, module: ir.Module, tf32: bool = False) -> CompiledKernels:
        """Compile every ``kern.kernel``, or find it in the cache. ``tf32``: allow TF32 in f32 matmuls."""

    @staticmethod
    @abstractmethod
    def load(path: Path) -> Kernels:
        """Load compiled kernels, to run them on this machine. Raises RuntimeFailure."""

    @staticmethod
    def find(name: str) -> Path | None:
        """Find kernels that :meth:`compile` put into the cache as ``path.name``; None if they are missing."""
        return disk.find(name)

    def takes(self, device: torch.device) -> bool:
        """Return True if kernels for this target run on tensors of a device."""
        found = self.of_device(device)
        return found is not None and found.name == self.name

    def key(self) -> str:
        """Return what a program depends on for this target, besides its kernels and the compiler's code."""
        return self.name

    def described(self) -> str:
        """Return the description of the target for artefacts."""
        return self.name

    def prepare(self) -> None:  # noqa: B027 -- most have nothing to start
        """Start processes that compiling needs, while the program is still being fused."""

    # choosing between libraries and kernels

    def local_device(self) -> torch.device | None:
        """Return this process's device if it can run and measure kernels for this target."""
        return None

    def clock(self, device: torch.device) -> Clock:
        """Return the clock for programs on a device."""
        return HostClock()

    def unmeasured(self, calls: Mapping[str, ir.Operation]) -> str:
        """Return why a region with these calls, by ATen name, cannot be measured now; empty if it can."""
        return ""

    def libraries(self, call: ir.Operation) -> Sequence[str]:
        """Return names of overloads with other implementations of an ATen call, to be measured against it."""
        return ()

    def compile_ahead(self, modules: Sequence[ir.Module]) -> None:
        """Compile the kernels of modules together, so that :meth:`compile` finds them compiled.

        Only for targets with :attr:`compiles_ahead`. Kernels that fail are left to :meth:`compile`.
        """
        raise NotImplementedError

    def choose_layouts(self, module: ir.Module, returned: Sequence[object]) -> int:
        """Give convolutions the layout in which they are fastest; return the number of changes.

        ``returned``: for each result, the strides in which it must be returned; None for contiguous ones.
        """
        return 0

    def choose_libraries(self, module: ir.Module, rounding: str) -> int:
        """Replace matmuls outside kernels by calls of the fastest library; return the number of changes."""
        return 0

    def estimate(self, module: ir.Module, tf32: bool = False) -> list[Estimated]:
        """Estimate the time of each kernel and call of a level 4 program.

        Only for targets with :attr:`is_modelled`. Raises ShardcError for an unsupported kernel.
        """
        raise NotImplementedError

    def rates(self) -> str:
        """Return text on the peak rates behind the estimates."""
        return ""

    # tuning

    def tuning(self) -> Tuning | None:
        """Return the interface for tuning kernels; None if there is nothing to tune."""
        return None
