"""Joining the ranks of a program: the process group, this rank's number and device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from .errors import WorldMismatch
from .mesh import Mesh

TIMEOUT_S = float(os.environ.get("SHARDC_TIMEOUT_S", "300"))
"""How long a rank waits for the others in one collective before it gives up, in seconds."""

AFTER = timedelta(seconds=30)
"""How much longer NCCL's own watchdog waits, which ends the process without saying what the program was at."""


@dataclass(frozen=True)
class Place:
    """Where this process stands: its rank, the device of its tensors, and how long it waits for others.

    ``nccl``: collectives are work of the device's, on a stream of their own.
    """

    rank: int
    device: torch.device
    timeout: timedelta
    nccl: bool = False


def connect(mesh: Mesh, device: torch.device | str | None = None, timeout_s: float = TIMEOUT_S) -> Place:
    """Join the process group that torchrun describes; a mesh of one rank needs none.

    Raises WorldMismatch if the number of ranks is not the size of the mesh.
    """
    world = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
    if world != mesh.world_size:
        raise WorldMismatch(
            f"the program is for a mesh of {mesh.world_size} ranks ({mesh.describe()}), but {world} are running",
            "the number of processes",
            f"start it with `torchrun --nproc-per-node {mesh.world_size} ...`, or compile it for another mesh",
        )
    timeout = timedelta(seconds=timeout_s)
    place = torch.device(device) if device is not None else _own_device()
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if world > 1:
        _join(place, timeout)
        backend = dist.group.WORLD._get_backend(place).name() if place.type == "cuda" else "gloo"
        return Place(dist.get_rank(), place, timeout, backend == "nccl")
    return Place(0, place, timeout)


def ensure_group(timeout: timedelta) -> None:
    """A process group of one for a lone rank, made when DTensors are first asked for: they can't do without."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)


def _own_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def _join(device: torch.device, timeout: timedelta) -> None:
    if dist.is_initialized():
        return
    if device.type != "cuda" or _shares_device():
        dist.init_process_group("gloo", timeout=timeout)
    else:
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timeout + AFTER)


def _shares_device() -> bool:
    """Whether ranks of this host have a GPU together."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count()
