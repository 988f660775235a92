"""What is asked of ``shardc plan``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shardc.options.presets import AUTO

PRESETS = "presets"
"""Name of all products of presets."""
SEARCH = "search_seconds", "search_limits"
"""Options of a search."""
AROUND = (*SEARCH, "recompute", "schedule", "balance_activations", "offload", "reshard_after_forward")
"""Options that a search of micro-batches and recomputation on a given mesh respects. With others it searches
only the cuts."""


@dataclass(frozen=True)
class PlanRequest:
    """Question to ``shardc plan``.

    Attributes:
        plans: Plans to price; :data:`PRESETS` for all products of presets. Default: a search, or all products
            of presets if a mesh, several clusters or an option that no search respects are given.
        meshes: Meshes to price; empty for meshes of all of the cluster's devices.
        batch: Samples of the global batch. Default: one per device.
        largest: Quantity to maximize instead of taking it as given: ``batch`` or ``length``.
        every_layer: Also compile layers that equal others.
        every_plan: Also compile plans that cannot be the best.
        front: Also find plans that need less memory than the one that a search picked.
        sensitivity: Search again with other links, memory and batches.
        elastic: Also plan for up to so many nodes fewer, or devices fewer on a single node.
    """

    source: Path
    clusters: Sequence[str]
    meshes: Sequence[Mapping[str, int]] = ()
    plans: Sequence[str] = ()
    micro_batches: int | None = None
    batch: int | None = None
    length: int | None = None
    precision: str | None = None
    what_if: Sequence[str] = ()
    largest: Literal["batch", "length"] | None = None
    options: Mapping[str, object] | None = None
    json_file: Path | None = None
    html_file: Path | None = None
    trace_file: Path | None = None
    chakra_folder: Path | None = None
    every_layer: bool = False
    every_plan: bool = False
    front: bool = False
    sensitivity: bool = False
    elastic: int = 0

    @property
    def shows_layers(self) -> bool:
        """Return whether an output file shows each layer."""
        return any(file is not None for file in (self.html_file, self.trace_file, self.chakra_folder))

    @property
    def settled(self) -> PlanRequest:
        """Return the request with the default of its plans."""
        is_given = self.plans or self.meshes or self.every_plan or len(self.clusters) > 1
        return self if is_given or self.fixing else replace(self, plans=(AUTO,))

    @property
    def fixing(self) -> str:
        """Name of a given option that a search around the cuts cannot respect; empty if there is none."""
        options = self.options or {}
        modules = not isinstance(options.get("recompute", ""), str)
        others = (name for name in options if name not in AROUND)
        return "recompute of single modules" if modules else next(others, "")
