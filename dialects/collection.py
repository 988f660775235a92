"""Pause of Python's garbage collector while a program is traced, rewritten or written out."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Context manager that disables garbage collection and restores its previous state on exit. May be
    nested.

    Tracing and passes make millions of small objects that stay alive, and hardly any cycles, so each
    collection would scan all of them and free nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
