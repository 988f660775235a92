"""End of a rank together with the process that started it, however that one ended."""

import ctypes
import os
import signal
import sys

from ..environment import LAUNCHER

_PARENT_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of prctl(2)."""


def end_with_launcher() -> None:
    """Make Linux kill this process when its parent ends, which is torchrun or ``shardc run``."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    launcher = LAUNCHER.get()
    if launcher and os.getppid() != launcher:  # the parent ended before prctl was called
        os._exit(1)
