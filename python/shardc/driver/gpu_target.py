"""Which of ``torch.compile``'s graphs have kernels, and for which GPU."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from shardc.backends.triton.compile import check_triton
from shardc.backends.triton.targets import Target
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.dynamo import ShardcFallbackWarning


def has_kernels(device: torch.device) -> bool:
    """Whether kernels can be made for a device: a CPU's own, or Triton's."""
    return device.type == "cpu" or gpu_target(device) is not None


@cache
def gpu_target(device: torch.device) -> Target | None:
    """The GPU that Triton kernels of a device are made for; None for a CPU, and where a warning says why not."""
    if device.type != "cuda":
        return None
    try:
        check_triton(str(device))
        from shardc.backends.triton.device import device_target  # imports Triton

        return device_target(device)
    except ShardcError as error:
        warnings.warn(str(error), ShardcFallbackWarning, stacklevel=2)
        return None
