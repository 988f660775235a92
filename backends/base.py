"""The interface of a target: what the compiler asks of whatever kernels are made for.

A target stands in a folder of its own beside this file, and in one line of ``registry.py``; nothing outside
its folder asks which one it is. Modules of targets import neither MLIR nor a compiler before a method needs
one: a start from the caches does without.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from shardc.backends.benchmark.clocks import Clock, HostClock
from shardc.passes.fuse.grouping.capabilities import Capabilities

if TYPE_CHECKING:
    import torch
    from torch_mlir import ir

    from shardc.backends.estimate import Estimated
    from shardc.backends.tuning.target import Tuning
    from shardc.runtime.kernels.loaders import Kernels


@dataclass(frozen=True)
class CompiledKernels:
    """The kernels of a module: ``path`` is what :meth:`Target.load` opens, None if there are none; ``errors``
    says by name why others were not compiled, and if there are any, nothing else counts.
    """

    path: Path | None = None
    errors: Mapping[str, Exception] = field(default_factory=dict)


class Target(ABC):
    """What kernels are made for. ``name``: for users and artefacts; ``backend``: its line of the registry."""

    backend: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()
    """What fusion may put into kernels."""
    pooled: ClassVar[bool] = False
    """Whether large results of ATen's calls lie in memory of the runtime's pool."""
    is_modelled: ClassVar[bool] = False
    """Whether a model of costs says what programs take where they cannot be measured."""
    runs_on_host: ClassVar[bool] = False
    """Whether kernels take tensors of the host, so that the oracle runs them as they are."""
    compiles_ahead: ClassVar[bool] = False
    """Whether kernels of several programs are sooner compiled together than one program at a time."""

    @property
    @abstractmethod
    def name(self) -> str:
        """``cpu``, ``sm_90``."""

    @staticmethod
    @abstractmethod
    def names() -> Sequence[str]:
        """The targets of this backend that can be asked for."""

    @classmethod
    @abstractmethod
    def named(cls, name: str) -> Target | None:
        """The target of that name; None if it is not of this backend."""

    @classmethod
    @abstractmethod
    def of_device(cls, device: torch.device) -> Target | None:
        """The target that a device runs; None if that is not of this backend, or a warning says why not."""

    def on_this_machine(self) -> str:
        """What of this machine makes kernels and runs them, in a line for ``shardc doctor``."""
        return self.described()

    @abstractmethod
    def check(self) -> None:
        """Raises ShardcError or RuntimeFailure where no kernels can be compiled on this machine."""

    @abstractmethod
    def compile(self, module: ir.Module, tf32: bool = False) -> CompiledKernels:
        """Compiles every ``kern.kernel``, or finds it cached. ``tf32``: f32 products may be computed so."""

    @staticmethod
    @abstractmethod
    def load(path: Path) -> Kernels:
        """What was compiled, ready to run on this machine. Raises RuntimeFailure."""

    @staticmethod
    @abstractmethod
    def find(name: str) -> Path | None:
        """The kernels that :meth:`compile` left in the cache as ``path.name``; None if they are gone."""

    def takes(self, device: torch.device) -> bool:
        """Whether kernels for this target run on tensors of a device."""
        found = self.of_device(device)
        return found is not None and found.name == self.name

    def key(self) -> str:
        """All that a program for this target depends on, besides its kernels and the compiler's own code."""
        return self.name

    def described(self) -> str:
        """What an artefact says that its kernels are for."""
        return self.name

    def prepare(self) -> None:  # noqa: B027 -- most have nothing to start
        """Starts what compiling needs, while the program is still being fused."""

    # choosing between libraries and kernels

    def local_device(self) -> torch.device | None:
        """This process's device, where kernels for this target run on it and can be measured."""
        return None

    def clock(self, device: torch.device) -> Clock:
        """What times programs on a device."""
        return HostClock()

    def unmeasured(self, calls: Mapping[str, ir.Operation]) -> str:
        """Why a region with these calls, by target, cannot be measured now; empty if it can."""
        return ""

    def libraries(self, call: ir.Operation) -> Sequence[str]:
        """Names of overloads that compute a call of ATen otherwise, and compete with it."""
        return ()

    def compile_ahead(self, modules: Sequence[ir.Module]) -> None:
        """Compiles the kernels of modules together, where the target :attr:`compiles_ahead`, so that
        :meth:`compile` finds each of them made. What does not compile is left to that.
        """
        raise NotImplementedError

    def choose_libraries(self, module: ir.Module, rounding: str) -> int:
        """Makes products outside kernels calls of the library measured fastest here; returns how many."""
        return 0

    def estimate(self, module: ir.Module, tf32: bool = False) -> list[Estimated]:
        """What each kernel and call of a program of level 4 takes, where it :attr:`is_modelled`. Raises
        ShardcError for a kernel that there is no code for.
        """
        raise NotImplementedError

    def rates(self) -> str:
        """The rates behind the estimates, in words."""
        return ""

    # tuning

    def tuning(self) -> Tuning | None:
        """How configurations of kernels are listed, built and run; None where there is nothing to choose."""
        return None
