"""The CPU that code is made for: the host's, by its name and the instruction sets that it has."""

from __future__ import annotations

import platform
from functools import cache

from shardc.runtime.kernels import cpu_features


@cache
def host_target() -> str:
    """``x86_64 avx avx2 ...``: the architecture and its instruction sets, in one line."""
    return " ".join([platform.machine(), *sorted(cpu_features())])


@cache
def host_model() -> str:
    """The processor's name: LLVM orders instructions by it."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line.split(":", 1) for line in file if ":" in line]
    except OSError:
        return platform.processor()
    wanted = {"model name", "cpu family", "model", "stepping"}
    return " ".join(dict.fromkeys(value.strip() for name, value in lines if name.strip() in wanted))


def vector_bytes() -> int:
    """The width of a vector register."""
    features = cpu_features()
    return 64 if "avx512f" in features else 32 if {"avx2", "fma"} <= features else 16


def multiplies_pairs() -> bool:
    """Whether an instruction adds up products of pairs of bf16 in f32 (AVX512-BF16's ``vdpbf16ps``)."""
    return {"avx512f", "avx512_bf16"} <= cpu_features()


def vector_lanes() -> int:
    """The f32 lanes of one."""
    return vector_bytes() // 4


def vector_registers() -> int:
    """How many vector registers there are."""
    return 16 if platform.machine() == "x86_64" and "avx512f" not in cpu_features() else 32
