"""Environment variables that the compiler reads or sets. ``docs/reference/environment.md`` lists them.

Variables that a running step reads are in ``runtime/environment.py``, which artefacts contain. No other
module reads or changes ``os.environ``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from shardc.runtime.environment import DEBUG as DEBUG
from shardc.runtime.environment import LAUNCHER as LAUNCHER
from shardc.runtime.environment import LOCAL_WORLD_SIZE as LOCAL_WORLD_SIZE
from shardc.runtime.environment import RANK as RANK
from shardc.runtime.environment import SILENCE as SILENCE
from shardc.runtime.environment import WORLD_SIZE as WORLD_SIZE
from shardc.runtime.environment import Variable
from shardc.runtime.environment import changed as changed
from shardc.runtime.environment import child_environment as child_environment

PYTORCH_CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""PyTorch's folder of pickles, which is replaced by a private folder while a trace is stored."""


def _path(name: str, effect: str, otherwise: str, kind: str = "path") -> Variable[Path | None]:
    return Variable(name, kind, None, lambda text: Path(text) if text else None, effect, otherwise)


CACHE_DIR = _path(
    "SHARDC_CACHE_DIR",
    "The folder of compiled kernels and programs.",
    "`$XDG_CACHE_HOME/shardc`, or `~/.cache/shardc`",
)
CACHE_BYTES = Variable(
    "SHARDC_CACHE_BYTES",
    "bytes",
    2 << 30,
    lambda text: int(text) if text.isdecimal() else 2 << 30,
    "The size of the cache folder above which the least recently used files are deleted.",
)
STEP_CACHE = Variable(
    "SHARDC_STEP_CACHE",
    "0 or 1",
    True,
    {"0": False, "1": True}.__getitem__,
    "0 compiles each training step again; 1 loads a program that was compiled before.",
    "1",
)
PLAN_CACHE = Variable(
    "SHARDC_PLAN_CACHE",
    "0 or 1",
    True,
    {"0": False, "1": True}.__getitem__,
    '0 repeats each search for `plan="auto"` without a mesh; 1 reuses the result of an equal search.',
    "1",
)
ELASTIC = Variable(
    "SHARDC_ELASTIC",
    "flag",
    False,
    bool,
    "Rank 0 prints the plan that a search picked. `shardc run --elastic` sets it for the ranks.",
)
FOLD_LAYERS = Variable(
    "SHARDC_FOLD_LAYERS",
    "0 or 1",
    True,
    {"0": False, "1": True}.__getitem__,
    "0 traces every layer of a model; 1 copies the trace of equal layers, which gives the same program.",
    "1",
)
CACHE_HOME = _path("XDG_CACHE_HOME", "The user's folder of caches, by the XDG specification.", "`~/.cache`")
TUNING_DB = _path(
    "SHARDC_TUNING_DB",
    "The database of the tuner's trials.",
    "beside the cache folder, `<cache folder>-tuning.db`",
)
SHIPPED_TUNING = _path(
    "SHARDC_SHIPPED_TUNING",
    "The file of tuned configurations to start from; empty uses only what was measured on this machine.",
    "the configurations that come with shardc",
    "path, or empty",
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
