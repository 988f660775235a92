"""Python's garbage collector, kept out of the way while a program is traced, rewritten or written out."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage collection inside; afterwards, also after an error, as it was before. May be nested.

    Tracing and passes make millions of small objects that stay alive and hardly a cycle: every collection
    reads all of them to free nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
