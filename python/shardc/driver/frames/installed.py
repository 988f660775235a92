"""Which files change with versions alone, which name a kept frame."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path

import torch


@cache
def is_of_versions(file: str) -> bool:
    """Whether a file belongs to this version of Python or PyTorch."""
    if Path(file).is_relative_to(Path(torch.__file__).parent):
        return True
    of_python = Path(file).is_relative_to(sysconfig.get_path("stdlib")) or file.startswith("<frozen ")
    return of_python and not _of_packages(file)


def is_installed(file: str) -> bool:
    """Whether a file changes with the versions of Python, PyTorch and the installed packages alone."""
    return is_of_versions(file) or _of_packages(file)


def is_installed_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return name in sys.builtin_module_names or (file is not None and is_installed(file))


def _of_packages(file: str) -> bool:
    return bool({"site-packages", "dist-packages"} & set(Path(file).parts))
