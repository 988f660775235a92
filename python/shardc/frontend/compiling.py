"""The state of mind in which libraries take their traceable paths: ``torch.compiler.is_compiling()`` is true."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def compiling() -> Iterator[None]:
    """Sets torch's private flag for the length of a trace.

    Without it ``transformers`` reads mask values, and ``capturable`` optimizers refuse CPU tensors.
    """
    saved = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = saved
