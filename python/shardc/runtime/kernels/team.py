"""Execution of a kernel on torch's own OpenMP threads, also in a forked child.

GNU OpenMP keeps a pool for each thread that ever led a team. A forked child inherits the pool of the thread
that forked, but not the pool's threads, so the next team would wait for them forever. In such a child, a new
thread leads all teams and gets its own pool. (ATen's ops still need ``torch.set_num_threads(1)`` there, as in
any PyTorch program.)
"""

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch

from ..errors import RuntimeFailure

_forked: int | None = None
"""Identifier of the thread with which this process started, if it was forked."""


def parallel(function: ctypes.c_void_p, data: int, threads: int, flags: int = 0) -> None:
    """Run ``function(data)`` on each of ``threads`` threads of torch's OpenMP pool."""
    if threading.get_ident() == _forked:
        _leader().submit(_gomp_parallel(), function, data, threads, flags).result()
    else:
        _gomp_parallel()(function, data, threads, flags)


@cache
def _gomp_parallel() -> Callable[[ctypes.c_void_p, int, int, int], None]:
    function = ctypes.CDLL(openmp_path()).GOMP_parallel
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return function


@cache
def openmp_path() -> str:
    """Return the path of the OpenMP library that torch has loaded in this process.

    Raises:
        RuntimeFailure: torch was built without GNU OpenMP, or the system is not Linux.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.is_file() else []
    loaded = {line.split(maxsplit=5)[-1].strip() for line in lines if "libgomp" in line}
    if not loaded:
        raise RuntimeFailure("this torch has no GNU OpenMP (libgomp), which compiled kernels share with it")
    folder = str(Path(torch.__file__).parent)
    return min(loaded, key=lambda path: (not path.startswith(folder), path))


@cache
def _leader() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "shardc-team")


def _after_fork() -> None:
    global _forked
    _forked = threading.get_ident()
    _leader.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
