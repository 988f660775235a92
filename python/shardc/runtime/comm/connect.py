"""Connection of a program's ranks: the process group, this rank's number and its device."""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from .. import environment
from ..arguments import device_given, seconds_given
from ..errors import NoSuchDevice, WorldMismatch
from ..memory import expand_segments
from .mesh import Mesh

Device = torch.device | str | None
TIMEOUT_S = environment.TIMEOUT_S.get()
"""Time-out of a collective, in seconds."""

AFTER = timedelta(seconds=30)
"""Additional time-out of NCCL's own watchdog, which ends the process without naming the collective."""
GPU_HINT = "install the GPU's driver and a torch for it, or compile for the CPU (target='cpu', --target cpu)"
OTHER_HINT = "leave the device out: each rank then takes its own"


@dataclass(frozen=True)
class Place:
    """This process's rank, device and time-out. ``nccl``: collectives run on a stream of the device."""

    rank: int
    device: torch.device
    timeout: timedelta
    nccl: bool = False


def connect(mesh: Mesh, device: Device = None, timeout_s: float = TIMEOUT_S) -> Place:
    """Join torchrun's process group. A mesh of one rank needs none.

    ``device``: device of this rank's tensors. Default, also for ``"cuda"``: this rank's own GPU.

    Raises WorldMismatch for another number of ranks than the mesh's, NoSuchDevice for an absent GPU.
    """
    world = dist.get_world_size() if dist.is_initialized() else environment.WORLD_SIZE.get()
    if world != mesh.world_size:
        count = mesh.world_size
        what = f"the program is for a mesh of {count} ranks ({mesh.describe()}), but {world} are running"
        hint = f"start it with `torchrun --nproc-per-node {count} ...`, or compile it for another mesh"
        raise WorldMismatch(what, "the number of processes", hint)
    timeout = seconds_given(timeout_s, "timeout_s")
    place = own_device() if device is None else _found(device_given(device))
    if place.type == "cuda":
        torch.cuda.set_device(place)
        expand_segments()
    if world > 1:
        join(place, timeout)
        nccl = place.type == "cuda" and backend_of(None, place) == "nccl"
        return Place(dist.get_rank(), place, timeout, nccl)
    return Place(0, place, timeout)


def ensure_group(timeout: timedelta) -> None:
    """Make a process group for a single rank, if there is none. DTensors need one."""
    if not dist.is_initialized():
        store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]: its manual names it
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timeout)


def backend_of(group: dist.ProcessGroup | None, device: torch.device) -> str:
    """Return a group's backend for a device, such as ``nccl``; empty if none.

    ``group``: None for the default.
    """
    named = dist.get_backend_config(group)  # "cpu:gloo,cuda:nccl"
    return dict(pair.split(":") for pair in named.split(",")).get(device.type, "")


def own_device() -> torch.device:
    """Return this process's GPU among those of its host, or the CPU if torch sees no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", environment.LOCAL_RANK.get() % torch.cuda.device_count())


def _found(device: torch.device) -> torch.device:
    """Return ``device``, with its number if it is a GPU. Raises NoSuchDevice."""
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        seen = f"torch {torch.__version__} sees {count or 'no'} GPU{'s' * (count > 1)} here"
        hint = GPU_HINT if count == 0 else OTHER_HINT
        raise NoSuchDevice(f"there is no device {str(device)!r}: {seen}", hint=hint)
    return own_device() if device.index is None else device


def join(device: torch.device, timeout: timedelta = timedelta(seconds=TIMEOUT_S)) -> None:
    """Join torchrun's process group, unless this process has. ``device``: that of this rank's tensors."""
    if dist.is_initialized():
        return
    if device.type != "cuda" or environment.LOCAL_WORLD_SIZE.get() > torch.cuda.device_count():
        dist.init_process_group("gloo", timeout=timeout)
    else:
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timeout + AFTER)
