"""Worker process that ``process.py`` starts: ``worker.py MODULE:FUNCTION PATH...``.

It sends a message when it is ready. Each request has the function's argument and a limit in seconds. The
answer is whether the function returned, and its result or error. Standard output is redirected to standard
error.
"""

import os
import pickle
import signal
import struct
import sys
from importlib import import_module
from typing import BinaryIO

LATE_S = 30
"""Seconds after the limit at which it ends itself: the caller has ended, or would have killed it."""


def main(role: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = os.fdopen(os.dup(0), "rb")
    module, _, name = role.partition(":")
    function = getattr(import_module(module), name)
    _send(answers, (True, "ready"))
    while head := asked.read(8):
        message, limit_s = pickle.loads(asked.read(*struct.unpack("<Q", head)))
        signal.setitimer(signal.ITIMER_REAL, limit_s + LATE_S)
        try:
            answer = (True, function(message))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}"[:2000])
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, answer)


def _send(answers: BinaryIO, answer: tuple[bool, object]) -> None:
    content = pickle.dumps(answer)
    answers.write(struct.pack("<Q", len(content)) + content)
    answers.flush()


if __name__ == "__main__":
    sys.path[1:1] = sys.argv[2:]

    main(sys.argv[1])
