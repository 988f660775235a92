"""The cache folder's path, and whether this process may use it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shardc.cache.trust import problem_of
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.kernels import KernelCacheNotTrusted, KernelCacheWarning
from shardc.environment import CACHE_DIR, CACHE_HOME
from shardc.runtime.report.messages import warn

_said: set[Path] = set()


def cache_folder() -> Path:
    """Return ``$SHARDC_CACHE_DIR``, else ``$XDG_CACHE_HOME/shardc``, else ``~/.cache/shardc``."""
    return CACHE_DIR.get() or (CACHE_HOME.get() or Path.home() / ".cache") / "shardc"


def trusted_folder() -> Path | None:
    """Return the cache folder with links resolved; None, after one warning, if others could write to it."""
    folder = cache_folder().absolute()
    with suppress(OSError, RuntimeError):  # a circle of links: the later write fails and reports it
        folder = folder.resolve()
    problem = problem_of(folder)
    if problem is None:
        return folder
    say(folder, KernelCacheNotTrusted(folder=folder, problem=problem))
    return None


def say(folder: Path, message: ShardcError) -> None:
    """Warn once for each folder."""
    if folder not in _said:
        _said.add(folder)
        warn(type(message).__name__, str(message), KernelCacheWarning, 5)


def make(folder: Path) -> None:
    """Create the folder and its missing parents with access for this user alone. Raises OSError."""
    for part in reversed([folder, *folder.parents]):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)
