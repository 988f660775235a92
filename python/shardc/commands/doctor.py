"""``shardc doctor``: what this machine has, and which parts of shardc work on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch

from shardc.backends.benchmark.host import host_model
from shardc.backends.cpu.host import check_target, target
from shardc.backends.cpu.object_code.link import system_linker
from shardc.backends.triton.aot.compile import check_triton
from shardc.cache.place import cache_folder
from shardc.cache.trust import problem_of
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.text import table
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.kernels.team import openmp_path
from shardc.tuner.database.place import database_path

PACKAGES = ("shardc", "torch", "torch-mlir", "triton", "transformers")


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and whether shardc can use it."""

    name: str
    found: str
    works: bool = True


def findings() -> list[Finding]:
    """Everything that is looked at, in the order in which it is printed. Nothing is compiled or written."""
    packages = [_package(name) for name in PACKAGES]
    checks = [
        _checked("kernels for the CPU", check_target, f"{host_model()}: {target()}"),
        _checked("OpenMP of PyTorch", openmp_path, "found"),
        Finding("linker", " ".join(system_linker() or ["none needed on this architecture"])),
        _checked("kernels for GPUs", lambda: check_triton("a GPU"), "Triton compiles for any GPU"),
    ]
    folder = cache_folder()
    problem = problem_of(folder.absolute()) or ("" if _is_writable(str(folder)) else "it cannot be written")
    caches = [
        Finding("cache folder", f"{folder}{': ' if problem else ''}{problem}", not problem),
        Finding("tuning database", f"{database_path()}{'' if database_path().is_file() else ' (none yet)'}"),
    ]
    return [*packages, Finding("cores", str(os.cpu_count())), *checks, *_gpus(), *caches]


def render(found: list[Finding]) -> str:
    """A table with a mark for what does not work."""
    return "\n".join(table([("ok" if f.works else "no", f.name, f.found) for f in found]))


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "not installed", works=name in ("triton", "transformers"))


def _checked(name: str, check: Callable[[], object], found: str) -> Finding:
    try:
        check()
    except (ShardcError, RuntimeFailure) as error:
        return Finding(name, " ".join(str(error).split()), works=False)
    return Finding(name, found)


def _gpus() -> list[Finding]:
    """Each GPU with its architecture, and CUDA's driver as PyTorch sees it."""
    if not torch.cuda.is_available():
        return [Finding("GPU", f"none that PyTorch {torch.__version__} sees; programs run on the CPU")]
    rows = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    each = [f"{p.name}, sm_{p.major}{p.minor}, {p.total_memory / 1e9:.0f} GB" for p in rows]
    return [Finding("GPU", f"{text}, CUDA {torch.version.cuda}") for text in each]


def _is_writable(folder: str) -> bool:
    """Whether a folder, or the nearest one above it that is there, can be written."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or os.sep
    return os.access(folder, os.W_OK)
