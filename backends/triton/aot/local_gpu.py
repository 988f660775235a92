"""GPU of this machine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from shardc.backends.triton.aot.compile import check_triton
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.runtime.comm.connect import own_device
from shardc.runtime.report.messages import warn

if TYPE_CHECKING:
    from shardc.cost.machine import Gpu


def local_device(gpu: Gpu) -> torch.device | None:
    """Return this process's device if kernels for ``gpu`` run on it."""
    device = own_device()
    found = device_gpu(device)
    same = found is not None and (found.backend, found.arch) == (gpu.backend, gpu.arch)
    return device if same else None


@cache
def device_gpu(device: torch.device) -> Gpu | None:
    """Return the target for a device; None, with a warning, if Triton cannot compile for it."""
    if device.type != "cuda":
        return None
    try:
        check_triton(str(device))
        from shardc.backends.triton.aot.device import device_target  # imports Triton

        return device_target(device)
    except ShardcError as error:
        warn(type(error).__name__, str(error), ShardcFallbackWarning, 2)
        return None
