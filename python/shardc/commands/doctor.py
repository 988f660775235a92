"""``shardc doctor``: what this machine has, and which parts of shardc work on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch

from shardc.backends.registry import BACKENDS, backend_class
from shardc.cache.place import cache_folder
from shardc.cache.trust import problem_of
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.text import table
from shardc.runtime.errors import RuntimeFailure
from shardc.tuner.database.place import database_path

PACKAGES = {"shardc": True, "torch": True, "torch-mlir": True, "triton": False, "transformers": False}
"""Packages to look for, and whether shardc requires them."""


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was examined, what was found, and whether shardc can use it."""

    name: str
    found: str
    works: bool = True


def findings() -> list[Finding]:
    """Return all findings in the order of printing. Nothing is compiled or written."""
    packages = [_package(*named) for named in PACKAGES.items()]
    checks = [_kernels(backend) for backend in BACKENDS]
    folder = cache_folder()
    problem = problem_of(folder.absolute()) or ("" if _is_writable(str(folder)) else "it cannot be written")
    caches = [
        Finding("cache folder", f"{folder}{': ' if problem else ''}{problem}", not problem),
        Finding("tuning database", f"{database_path()}{'' if database_path().is_file() else ' (none yet)'}"),
    ]
    return [*packages, Finding("cores", str(os.cpu_count())), *checks, *_gpus(), *caches]


def render(found: list[Finding]) -> str:
    """Return the findings as a table whose first column marks failures."""
    return "\n".join(table([("ok" if f.works else "no", f.name, f.found) for f in found]))


def _package(name: str, is_needed: bool) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "not installed", works=not is_needed)


def _kernels(backend: str) -> Finding:
    """Return whether a backend can compile kernels on this machine, and with which tools."""
    name, found = f"kernels of the {backend} backend", backend_class(backend)
    target = found.named(found.names()[0])
    assert target is not None
    try:
        target.check()
    except (ShardcError, RuntimeFailure) as error:
        return Finding(name, " ".join(str(error).split()), works=False)
    return Finding(name, target.on_this_machine())


def _gpus() -> list[Finding]:
    """Return each GPU with its architecture and the CUDA version of PyTorch."""
    if not torch.cuda.is_available():
        return [Finding("GPU", f"none that PyTorch {torch.__version__} sees; programs run on the CPU")]
    rows = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    each = [f"{p.name}, sm_{p.major}{p.minor}, {p.total_memory / 1e9:.0f} GB" for p in rows]
    return [Finding("GPU", f"{text}, CUDA {torch.version.cuda}") for text in each]


def _is_writable(folder: str) -> bool:
    """Return whether a folder, or its nearest existing parent, is writable."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or os.sep
    return os.access(folder, os.W_OK)
