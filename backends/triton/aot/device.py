"""Target of this machine's GPU, with the properties that its driver reports."""

from __future__ import annotations

from dataclasses import replace

import torch

from shardc.cost.machine import GPUS, Gpu
from shardc.diagnostics.kernels import UnknownTarget
from shardc.diagnostics.triton import DriverTooOld
from shardc.runtime.kernels import triton_kernels

_LIKE = {8: "sm_80", 9: "sm_90", 10: "sm_100", 12: "sm_80"}
"""Major compute capability -> the known target whose schedules are used. 12 has the instructions of 8."""


def device_target(device: torch.device) -> Gpu:
    """Return a known target with this device's units and memories. Raises UnknownTarget, DriverTooOld."""
    found = torch.cuda.get_device_properties(device)
    is_amd, major, minor = torch.version.hip is not None, found.major, found.minor
    name = found.gcnArchName.partition(":")[0] if is_amd else f"sm_{major}{minor}"
    like = GPUS.get(name if is_amd else _LIKE.get(major, ""))
    if like is None:
        raise UnknownTarget(target=name, known=", ".join(GPUS))
    if is_amd:
        return replace(like, units=found.multi_processor_count)
    check_driver(triton_kernels.driver_version(), major >= 10)
    return replace(
        like,
        name=name,
        arch=10 * major + minor,
        units=found.multi_processor_count,
        shared_bytes=getattr(found, "shared_memory_per_block_optin", like.shared_bytes),
        threads=found.max_threads_per_multi_processor,
        l2_bytes=getattr(found, "L2_cache_size", like.l2_bytes),
    )


def check_driver(driver: int, is_late: bool = False) -> None:
    """Raise DriverTooOld unless a driver (12040: CUDA 12.4) can load the output of Triton's assembler."""
    lacking = triton_kernels.lacking_cuda(driver, is_late)
    if lacking is not None:
        raise DriverTooOld(found=lacking[0], needed=lacking[1])
