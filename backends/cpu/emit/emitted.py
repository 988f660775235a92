"""What is known of a kernel's function once it is written."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.backends.cpu.emit.buffers import Buffers
from shardc.dialects.kern.size import AnySize


@dataclass(eq=False)
class Emitted:
    """A function ``@name_body``: how many tensors it takes and makes, how many threads pay, and its
    workspace.

    ``outputs`` are those with memory of their own. ``elements_per_thread`` (0: sizes are known) are those of
    a flat kernel below which another thread does not pay. A kernel with symbolic sizes takes so many
    ``sizes``; ``work``, in additions, of which a thread is worth ``work_per_thread``, says then how many
    threads pay, and ``max_threads`` is an estimate.
    """

    name: str
    inputs: int
    outputs: int
    max_threads: int
    buffers: Buffers
    elements_per_thread: int = 0
    sizes: int = 0
    work: AnySize = 0
    work_per_thread: int = 1
