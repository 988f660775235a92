"""Identification of the machine that runs measurements."""

from __future__ import annotations

import platform
from functools import cache

_X86 = {"model name", "cpu family", "model", "stepping"}
_OF_A_MODEL = _X86 | {
    f"CPU {part}" for part in ("implementer", "architecture", "variant", "part", "revision")
}
"""Fields of ``/proc/cpuinfo`` that identify a processor's model, on x86-64 and on aarch64."""


@cache
def host_model() -> str:
    """Return the processor's model. LLVM schedules instructions for it."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line.split(":", 1) for line in file if ":" in line]
    except OSError:
        return platform.processor()
    found = dict.fromkeys((name.strip(), value.strip()) for name, value in lines)
    return " ".join(value for name, value in found if name in _OF_A_MODEL)
