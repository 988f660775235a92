"""Calls of compiled CPU kernels in a shared object of ``backends/cpu``, with torch's own OpenMP threads.

``Library(path).kernel(name, outputs=[(shape, dtype), ...])`` returns a function of tensors. Several threads
may call it at once, since each call has its own outputs and workspace.
"""

import ctypes
import hashlib
import json
import platform
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ..errors import RuntimeFailure
from .elf_text import symbol_text
from .kernel_call import Batch, Checks, Figures, Kernel, Member, Outputs, batch_caller, caller
from .pool import contiguous
from .team import openmp_path, parallel

SEAL = b"shardc-kernels-1"
"""Marker at the end of every library. The SHA-256 of all bytes before it follows."""

_X86 = ("avx", "sse", "ssse", "fma", "f16c", "bmi", "amx", "popcnt", "lzcnt", "abm", "vaes", "gfni")
_ARM = ("sve", "asimd")


_seen: dict[str, tuple[int, int]] = {}
"""Device and inode of each library that this process has opened, by path."""


class BadLibrary(RuntimeFailure):
    """A kernel library is truncated or was changed, is for another CPU, or has no such kernel."""


class Library:
    """Shared object of compiled kernels. Raises BadLibrary if it is damaged, or this CPU lacks features."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        content = self.path.read_bytes()
        if not is_whole(content):
            raise BadLibrary(f"{path} is truncated or changed, or is not a kernel library; compile it again")
        _check_cpu(self.path, content)
        ctypes.CDLL(openmp_path(), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
        try:
            self._library = _opened(self.path)
        except OSError as error:
            raise BadLibrary(f"{path} does not load: {error}") from None

    def kernel(
        self, name: str, outputs: Outputs, size: int | None = None, checks: Checks | None = None
    ) -> Kernel:
        """Return the kernel ``name`` as a function of CPU tensors that returns all ``outputs``.

        After the tensors, a kernel with symbolic sizes takes the integers of these sizes. Inputs must have
        the shapes and dtypes that the kernel was compiled for; this is not checked. ``size``: number of
        elements, for a flat kernel only. Raises BadLibrary for an unknown name, another number of outputs, or
        a missing or unexpected size.
        """
        entry, (inputs, _, max_threads, shared_bytes, thread_bytes, per_thread) = self._entry(name, [outputs])
        if (per_thread > 0) != (size is not None):
            takes = "takes" if per_thread else "does not take"
            raise BadLibrary(f"kernel {name!r} {takes} a number of elements")
        if size is not None:
            max_threads = max(1, size // per_thread)
        figures = self._symbolic(name, inputs) or Figures(inputs, 0, max_threads, shared_bytes, thread_bytes)
        return caller(entry, figures, outputs, parallel, size, checks)

    def batch(self, name: str, members: Sequence[Member]) -> Batch:
        """Return the flat kernel ``name``, called once for several tuples of tensors. Raises BadLibrary."""
        entry, (inputs, *_, per_thread) = self._entry(name, [outputs for _, outputs in members])
        if not per_thread:
            raise BadLibrary(f"kernel {name!r} does not take a number of elements")
        return batch_caller(entry, inputs, members, per_thread, parallel)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Allocate a result that an ATen op writes."""
        return contiguous(shape, dtype)

    def workspace_bytes(self, name: str, sizes: Sequence[int] = ()) -> int:
        """Return the bytes of a call's workspace, for torch's number of threads and these integers."""
        _, (inputs, _, max_threads, shared_bytes, thread_bytes, _) = self._entry(name, [])
        found = self._symbolic(name, inputs) or Figures(inputs, 0, max_threads, shared_bytes, thread_bytes)
        numbers = {f"n{number}": size for number, size in enumerate(sizes)}
        most, shared, each = (
            eval(value, {}, numbers) if isinstance(value, str) else value
            for value in (found.max_threads, found.shared_bytes, found.thread_bytes)
        )
        return shared + max(1, min(most, torch.get_num_threads())) * each

    def _entry(self, name: str, calls: Sequence[Outputs]) -> tuple[Any, list[int]]:
        """Return the machine code and its figures: see ``info`` in ``backends/cpu/object_code/lower.py``."""
        try:
            entry = getattr(self._library, name)
            figures = (ctypes.c_int64 * 6).in_dll(self._library, f"{name}_info")
        except (AttributeError, ValueError):
            raise BadLibrary(f"{self.path} has no kernel {name!r}") from None
        for outputs in calls:
            new = sum(isinstance(o, tuple) for o in outputs)
            if figures[1] != new:
                raise BadLibrary(f"kernel {name!r} has {figures[1]} outputs, not {new}")
        entry.argtypes, entry.restype = [ctypes.c_void_p], None
        return entry, list(figures)

    def _string(self, symbol: str) -> bytes:
        """Return the library's text of this name. Raises ValueError if there is none."""
        return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(self._library, symbol)))

    def _symbolic(self, name: str, inputs: int) -> Figures | None:
        """Return the figures of symbolic sizes: see ``sizes`` in ``backends/cpu/object_code/lower.py``."""
        try:
            text = self._string(f"{name}_sizes")
        except ValueError:
            return None
        found = json.loads(text)
        work, per_thread = _text(found["work"]), found["work_per_thread"]
        threads = max(1, work // per_thread) if isinstance(work, int) else f"({work}) // {per_thread}"
        return Figures(inputs, found["sizes"], threads, _text(found["shared"]), _text(found["thread"]))


def _opened(path: Path) -> ctypes.CDLL:
    """Return the shared object at ``path``. Raises OSError if it does not load.

    The dynamic linker returns a library that is already open under the same path, even if another file has
    replaced it since. So a file that replaced one is opened by a link with a new name.
    """
    path = path.absolute()
    status = path.stat()
    file = status.st_dev, status.st_ino
    if _seen.setdefault(str(path), file) == file:
        return ctypes.CDLL(str(path))
    with tempfile.TemporaryDirectory(prefix="shardc-") as folder:
        link = Path(folder, path.name)
        link.symlink_to(path)
        return ctypes.CDLL(str(link))


def _check_cpu(path: Path, content: bytes) -> None:
    """Raise BadLibrary, before a library is loaded, if this CPU cannot run it."""
    architecture, *features = (symbol_text(content, "shardc_target") or "").split() or [""]
    if not architecture:
        raise BadLibrary(f"{path} does not say which CPU it was compiled for; compile it again")
    if architecture != platform.machine():
        raise BadLibrary(f"{path} was compiled for {architecture}; compile it on this machine")
    if missing := sorted(set(features) - cpu_features()):
        named = " ".join(missing)
        raise BadLibrary(f"{path} was compiled for a CPU with {named}; compile it on this machine")


def _text(terms: list[list[int]]) -> int | str:
    """Return the expression of a sum of products of sizes, or a number if it is constant."""
    if terms == [[terms[0][0]]]:
        return terms[0][0]
    return " + ".join(" * ".join([str(factor), *(f"n{n}" for n in numbers)]) for factor, *numbers in terms)


@cache
def cpu_features() -> frozenset[str]:
    """Return the instruction sets of this machine's CPU, by Linux's names."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    found = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    return frozenset(w for w in found.split(":", 1)[1].split() if w.startswith((*_X86, *_ARM)))


def sealed(library: bytes) -> bytes:
    """Return ``library`` with its seal, to be written to disk."""
    return library + SEAL + hashlib.sha256(library).digest()


def is_whole(content: bytes) -> bool:
    """Return True if ``content`` is an unchanged, sealed library.

    Loading a truncated one ends the process.
    """
    size = len(content) - len(SEAL) - 32
    seal, digest = content[size : size + len(SEAL)], content[size + len(SEAL) :]
    return size > 0 and seal == SEAL and hashlib.sha256(content[:size]).digest() == digest
