"""This machine as a cluster of processes, described by measured rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device, Peaks
from shardc.cost.cluster.facts import Facts, NotNegative, Positive
from shardc.cost.cluster.level import Level
from shardc.cost.origin import Assumed
from shardc.diagnostics.cluster import UnknownCluster

MOST_PROCESSES: Annotated[int, Assumed("more do not start on one machine")] = 4096


@dataclass(frozen=True)
class Figures(Facts):
    """Measurements of ``compiler/probe.py``. Rates in FLOP/s and bytes/s, times in seconds.

    Rates are those of the threads that PyTorch uses; ``all_`` those of all cores together, 0 if they are the
    same.
    """

    memory_bytes: Positive
    """Memory of the machine."""
    f32_flop_s: Positive
    """Rate of a matmul of 1,024 rows, columns and terms."""
    bf16_flop_s: Positive
    memory_bytes_s: Positive
    """Bytes read and written by a copy."""
    launch_s: NotNegative
    """Time of a call with hardly any work."""
    message_s: NotNegative
    """Time of a message between two processes."""
    collective_s: NotNegative
    """Time of an all-reduce of one number between two processes."""
    sent_bytes_s: Positive
    """Bytes that each of two processes sends in a second of a long all-reduce."""
    cores: Positive = 1.0
    crowded_s: NotNegative = 0.0
    """Time of a step of a collective of few bytes, after computing, among two processes for each core."""
    all_f32_flop_s: NotNegative = 0.0
    all_bf16_flop_s: NotNegative = 0.0
    all_memory_bytes_s: NotNegative = 0.0


def local_cluster(figures: Figures, processes: int = 1) -> Cluster:
    """Return a cluster of processes that share the machine's cores, memory and memory bandwidth."""

    def share(own: float, of_all: float) -> float:
        return min(own, (of_all or own) / processes)

    device = Device(
        "processor",
        figures.memory_bytes / processes,
        flop_s=Peaks(
            f32=share(figures.f32_flop_s, figures.all_f32_flop_s),
            bf16=share(figures.bf16_flop_s, figures.all_bf16_flop_s),
        ),
        memory_bytes_s=share(figures.memory_bytes_s, figures.all_memory_bytes_s),
        launch_s=figures.launch_s,
    )
    waiting = max(0.0, processes / figures.cores - 1)  # processes for each core, besides the one that runs
    latency_s = max(figures.message_s, waiting * figures.crowded_s)
    link = Level("memory", processes, 2 * figures.sent_bytes_s, latency_s, "bus")
    launch_s = max(0.0, figures.collective_s - 2 * figures.message_s)
    overlaps = figures.cores >= 2 * processes  # Gloo copies messages on a core of its own
    library = Library("gloo", launch_s, ("ring", "direct", "point-to-point"), overlaps)
    return Cluster(f"local-{processes}", (device,), (link,), library)


def processes_of(name: str) -> int:
    """Return 4 for ``local-4``, 1 for ``local``. Raises UnknownCluster."""
    _, _, count = name.partition("-")
    if name != "local" and not (count.isdecimal() and 0 < int(count) <= MOST_PROCESSES):
        raise UnknownCluster(name=name, nearest="; did you mean 'local-4'?", known="local-4: four processes")
    return int(count or 1)
