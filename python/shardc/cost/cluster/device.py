"""Devices and hosts of a cluster. Sizes in bytes, times in seconds, rates in bytes/s and FLOP/s."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardc.cost.cluster.facts import Count, Facts, NotNegative, Positive, texts, title
from shardc.cost.machine import GPUS, Gpu, find_gpu
from shardc.diagnostics.cluster import BadClusterValue, MissingClusterKey

WIDER = {"f8": "f16", "i8": "f8", "f16": "bf16", "bf16": "tf32", "tf32": "f32", "f64": "f32"}
"""For each precision, the wider one whose units compute it on a device without units of its own."""

PRODUCT = "batch", "rows", "columns", "terms", "bytes of an element", "seconds"
"""Numbers of a row of ``Device.products``."""


@dataclass(frozen=True)
class Peaks(Facts):
    """Dense peak FLOP/s of matmuls by precision of the operands; ``f32`` is the rate of the plain units.

    A precision that is left out runs at the rate of the next wider one (:data:`WIDER`).
    """

    f64: Positive | None = None
    f32: Positive | None = None
    tf32: Positive | None = None
    bf16: Positive | None = None
    f16: Positive | None = None
    f8: Positive | None = None
    i8: Positive | None = None


@dataclass(frozen=True)
class Device(Facts):
    """One kind of device. Fields that are left out follow from ``arch``, a row of ``cost/machine.py``.

    Raises MissingClusterKey if neither gives a value.
    """

    name: str
    memory_bytes: Positive
    """Memory of one device."""
    arch: str = ""
    """The target of kernels for it: sm_80, sm_90, sm_100, gfx942; empty for CPUs."""
    count: Count | None = None
    """Number of devices of this kind. Default, for a single kind: all. Ranks number kinds in their order."""
    flop_s: Peaks = field(default_factory=Peaks)
    memory_bytes_s: Positive = 0.0
    """Rate of its memory, reading or writing."""
    launch_s: NotNegative = -1.0
    """Time from a kernel's end to the start of the next one in the stream."""
    power_w: Positive | None = None
    """Power that it draws under load."""
    products: tuple[tuple[Positive, ...], ...] = ()
    """Measured products: batch, rows, columns, terms, bytes of an element, seconds of each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        gpu = find_gpu(self.arch) if self.arch else None
        if not self.memory_bytes_s:
            object.__setattr__(self, "memory_bytes_s", self._figure("memory_bytes_s", gpu))
        if self.launch_s < 0:
            object.__setattr__(self, "launch_s", self._figure("launch_s", gpu))
        if any(len(row) != len(PRODUCT) for row in self.products):
            expected = f"{len(PRODUCT)} numbers for each product"
            says = texts(Device)["products"]
            raise BadClusterValue(
                key="products", of=title(self), given="another number", expected=expected, says=says
            )
        if gpu is None and self.flop_s.f32 is None:
            raise self._missing("f32", "flop_s of ")

    def _figure(self, name: str, gpu: Gpu | None) -> float:
        if gpu is None:
            raise self._missing(name)
        return getattr(gpu, name)

    def _missing(self, key: str, within: str = "") -> MissingClusterKey:
        expected = f"a number, or arch: one of {', '.join(GPUS)}"
        return MissingClusterKey(of=f"{within}device {self.name!r}", key=key, expected=expected)

    @property
    def gpu(self) -> Gpu | None:
        """Return the GPU that kernels are compiled for; None for a CPU."""
        return find_gpu(self.arch) if self.arch else None

    @property
    def is_cpu(self) -> bool:
        """Return whether it is a CPU: it has no ``arch``, and no rate of f16, which all GPUs have."""
        return self.gpu is None and self.flop_s.f16 is None

    @property
    def has_caching_allocator(self) -> bool:
        """Return whether PyTorch's caching allocator serves it.

        GPUs are those with a rate of 2-byte products.
        """
        return self.gpu is not None or self.flop_s.f16 is not None or self.flop_s.bf16 is not None

    def peak_flop_s(self, dtype: str) -> float:
        """Return the dense FLOP/s of matmuls of ``f32``, ``bf16``, ... Raises KeyError for another type."""
        found: float | None = getattr(self.flop_s, dtype, None)
        if found is not None:
            return found
        if self.gpu is not None and dtype in ("bf16", "f32"):
            return self.gpu.matmul_flop_s * (self.gpu.plain_part if dtype == "f32" else 1)
        return self.peak_flop_s(WIDER[dtype])


@dataclass(frozen=True)
class Host(Facts):
    """Host memory, for offloaded tensors."""

    memory_bytes: Positive
    """Host memory for each of its devices."""
    bytes_s: Positive
    """Rate of a device's link to the host, one way, while all devices use theirs."""
    latency_s: NotNegative = 0.0
    """Time until a copy starts."""
