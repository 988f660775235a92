"""CPU that code is generated for: the host, or the host with fewer instruction sets."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

from shardc.cost.machine import Cpu
from shardc.diagnostics.kernels import UnsupportedTarget
from shardc.environment import TARGET
from shardc.runtime.kernels.library import cpu_features

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
NEEDED = {"x86_64": {"avx2", "fma", "f16c"}, "aarch64": {"asimd"}}
"""Architecture -> instruction sets that code generation requires."""
ALWAYS = {"x86_64": {"sse", "sse2"}}
"""Architecture -> instruction sets of all its CPUs, in whose registers its calls pass floats."""
LLVM_NAMES = {"sse4_1": "sse4.1", "sse4_2": "sse4.2", "abm": "lzcnt", "bmi1": "bmi"}
"""Linux's name -> LLVM's, if they differ in more than the underscore."""


def target() -> str:
    """Return the architecture and its instruction sets: ``x86_64 avx avx2 ...``.

    ``$SHARDC_TARGET``, in the same form, may name fewer instruction sets than this machine has.
    """
    return " ".join([architecture(), *sorted(features())])


def architecture() -> str:
    """Return the target's architecture, as in ``uname -m``."""
    return (TARGET.get() or [platform.machine()])[0]


def features() -> frozenset[str]:
    """Return the target's instruction sets, by Linux's names."""
    named = TARGET.get()
    return frozenset(named[1:]) | ALWAYS.get(named[0], set()) if named else cpu_features()


def check_target() -> None:
    """Raise UnsupportedTarget if the target is not supported, or this machine cannot compile for it."""
    needed = NEEDED.get(architecture())
    if platform.system() != "Linux" or needed is None:
        named = f"{architecture()} ({platform.system()})"
        raise UnsupportedTarget(target=named, problem="shardc generates no code for it")
    if missing := needed - features():
        raise UnsupportedTarget(target=target(), problem=f"it lacks {' '.join(sorted(missing))}")
    if architecture() != platform.machine() or not features() <= cpu_features():
        lacks = " ".join(sorted(features() - cpu_features())) or architecture()
        problem = f"kernels are compiled only for this machine, which lacks {lacks}"
        raise UnsupportedTarget(target=target(), problem=problem)


def without() -> str:
    """Return LLVM's attribute for the features of this machine that the target lacks: ``-avx512f,...``."""
    missing = sorted(cpu_features() - features())
    return ",".join(f"-{LLVM_NAMES.get(name, name.replace('_', ''))}" for name in missing)


def vector_bytes() -> int:
    """Return the width of a vector register in bytes."""
    return 64 if "avx512f" in features() else 32 if architecture() == "x86_64" else 16


def multiplies_pairs() -> bool:
    """Return True if an instruction sums products of bf16 pairs in f32 (AVX512-BF16's ``vdpbf16ps``)."""
    return {"avx512f", "avx512_bf16"} <= features()


def scales_by_powers_of_two() -> bool:
    """Return True if an instruction scales f32 vectors by powers of two (AVX-512's ``vscalefps``)."""
    return "avx512f" in features()


def has_tables() -> bool:
    """Return True if the target has the instructions of :mod:`shardc.backends.cpu.lanes.tables`."""
    return {"avx512f", "avx512dq"} <= features()


def vector_lanes() -> int:
    """Return the number of f32 lanes in a vector register."""
    return vector_bytes() // 4


def vector_registers() -> int:
    """Return the number of vector registers."""
    return 16 if architecture() == "x86_64" and "avx512f" not in features() else 32


@cache
def this_machine() -> Cpu:
    """Return this machine for cost models. Caches that sysfs does not report get typical sizes."""
    found = dict(enumerate(Cpu.caches, 1))
    for folder in sorted(CACHES.glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and int(level) in found:
            found[int(level)] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
    return Cpu(vector_bytes(), vector_registers(), (found[1], found[2], found[3]))
