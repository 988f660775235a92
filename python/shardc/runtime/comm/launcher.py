"""Ends a rank with the process that started it, however that ended: nobody else would."""

import ctypes
import os
import signal
import sys

from ..environment import LAUNCHER

_PARENT_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of prctl(2)."""


def end_with_launcher() -> None:
    """Have Linux kill this process when its parent ends. Its parent is torchrun, or ``shardc run``."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    launcher = LAUNCHER.get()
    if launcher and os.getppid() != launcher:  # it ended before Linux was told
        os._exit(1)
