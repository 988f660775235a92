"""GPU memory of a process: the allocator's segments, and checks of a step's planned memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import cuda

from . import torch_private
from .environment import ALLOCATOR, CUDA_ALLOCATOR
from .errors import OutOfDeviceMemory

HINT = "use a smaller batch, more micro-batches, more ranks, or a plan that shards parameters (plan='zero3')"


def expand_segments() -> None:
    """Make PyTorch's CUDA allocator use expandable segments, unless the environment has settings for it.

    Blocks of such segments join when they are free, so less memory is reserved than in segments of fixed
    size. Plans count memory so (``shardc/cost/allocator.py``).
    """
    settings = torch_private.optional("set_allocator_settings")
    if settings is not None and ALLOCATOR.text() is None and CUDA_ALLOCATOR.text() is None:
        settings("expandable_segments:True")


def check_memory(planned_bytes: int, device: torch.device, rank: int) -> None:
    """Raise OutOfDeviceMemory if a step's planned bytes (0: unknown) exceed the memory of ``device``."""
    if device.type != "cuda":
        return
    _, total = cuda.mem_get_info(device)
    if planned_bytes > total:
        planned = _size(planned_bytes)
        what = f"the step was planned to take {planned} at its peak, and the GPU has {_size(total)}"
        raise OutOfDeviceMemory(what, f"rank {rank}, {device}", HINT)


@contextmanager
def told(planned_bytes: int, device: torch.device, rank: int) -> Iterator[None]:
    """Context that turns PyTorch's out-of-memory error into OutOfDeviceMemory, with the planned bytes."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        free, total = cuda.mem_get_info(device)
        own = cuda.memory_allocated(device)
        planned = _size(planned_bytes) if planned_bytes else "an unknown number of bytes"
        what = (
            f"the step ran out of memory: it was planned to take {planned} at its peak; of the GPU's "
            f"{_size(total)} this process holds {_size(own)} in tensors, and {_size(free)} are free"
            f" ({str(error).partition(chr(10))[0]})"
        )
        raise OutOfDeviceMemory(what, f"rank {rank}, {device}", HINT) from error


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
