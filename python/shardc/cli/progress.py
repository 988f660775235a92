"""Says on a terminal what is going on while something takes over a second."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def status(text: str) -> Iterator[None]:
    """Shows ``text`` with a spinner on standard error while the block runs; nothing if that is no
    terminal.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
