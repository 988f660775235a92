"""Environment variables that the compiler reads or sets. ``docs/reference/environment.md`` lists them.

Those that a running step reads are in ``runtime/environment.py``, which travels in artefacts. No other module
reads or changes ``os.environ``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from shardc.runtime.environment import (
    DEBUG,
    LOCAL_WORLD_SIZE,
    WORLD_SIZE,
    Variable,
    changed,
    child_environment,
)

__all__ = [
    "CACHE_BYTES",
    "CACHE_DIR",
    "CACHE_HOME",
    "DEBUG",
    "LINKER",
    "LOCAL_WORLD_SIZE",
    "OMP_NUM_THREADS",
    "SHIPPED_TUNING",
    "TARGET",
    "TUNING_DB",
    "WORLD_SIZE",
    "changed",
    "child_environment",
]


def _path_or_none(text: str) -> Path | None:
    return Path(text) if text else None


def _bytes_or_default(text: str) -> int:
    return int(text) if text.isdecimal() else 2 << 30


CACHE_DIR = Variable(
    "SHARDC_CACHE_DIR",
    "path",
    None,
    _path_or_none,
    "The folder of compiled kernels and programs.",
    "`$XDG_CACHE_HOME/shardc`, or `~/.cache/shardc`",
)
CACHE_BYTES = Variable(
    "SHARDC_CACHE_BYTES",
    "bytes",
    2 << 30,
    _bytes_or_default,
    "The size of the cache folder above which the least recently used files are deleted.",
)
CACHE_HOME = Variable(
    "XDG_CACHE_HOME",
    "path",
    None,
    _path_or_none,
    "The user's folder of caches, by the XDG specification.",
    "`~/.cache`",
)
TUNING_DB = Variable(
    "SHARDC_TUNING_DB",
    "path",
    None,
    _path_or_none,
    "The database of the tuner's trials.",
    "beside the cache folder, `<cache folder>-tuning.db`",
)
SHIPPED_TUNING = Variable(
    "SHARDC_SHIPPED_TUNING",
    "path, or empty",
    None,
    _path_or_none,
    "The file of tuned configurations to start from; empty uses only what was measured on this machine.",
    "the configurations that come with shardc",
)
TARGET = Variable(
    "SHARDC_TARGET",
    "an architecture and its instruction sets, separated by spaces",
    [],
    str.split,
    "The CPU to compile for, with fewer instruction sets than this machine: `x86_64 avx avx2 f16c fma ...`.",
    "this machine",
)
LINKER = Variable(
    "SHARDC_LINKER",
    "a command",
    [],
    shlex.split,
    "The linker of CPU kernels.",
    "none on x86-64; elsewhere the first of ld, ld.lld, mold, cc, gcc, clang on the path",
)
OMP_NUM_THREADS = Variable(
    "OMP_NUM_THREADS",
    "number",
    "",
    str,
    "Threads of a process on CPUs. `shardc run` sets it to 1 for ranks that share a CPU, unless it is set.",
    "PyTorch's",
)
