"""Settings of the ``torch.compile`` backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from shardc.backends import registry
from shardc.backends.base import Target
from shardc.backends.benchmark.clocks import HostClock
from shardc.compiler.warn_once import warn_once
from shardc.diagnostics.dynamo import OtherDevice
from shardc.diagnostics.passes.fusion import BadFusionEdge
from shardc.options.given import Given
from shardc.options.kernels import Kernels
from shardc.options.numerics import Numerics
from shardc.options.targets import check_target
from shardc.tuner.database.place import tuning_choices

if TYPE_CHECKING:
    from shardc.passes.fuse.grouping.constraints import FusionConstraints


@dataclass(frozen=True)
class Settings:
    """Options of one ``torch.compile(backend="shardc")``."""

    kernels: Kernels = field(default_factory=Kernels)
    numerics: Numerics = field(default_factory=Numerics)

    @staticmethod
    def of(options: Mapping[str, object]) -> Settings:
        """Read ``options``, given by groups and by names of fields.

        Raises BadArgument, UnknownOption, OldSpelling, OptionElsewhere, BadFusionEdge, UnknownTarget.
        """
        given = Given(options, "torch.compile", ("kernels", "numerics"))
        settings = Settings(given.group("kernels", Kernels), given.group("numerics", Numerics))
        if settings.kernels.target is not None:
            check_target(settings.kernels.target)
        if settings.kernels.has_edges:
            settings.constraints()
        return settings

    def cache_key(self) -> str:
        """Return a text of what programs depend on: settings, conditions of benchmarks, tuning."""
        tuned = f" tuned {choices}" if self.kernels.fuse and (choices := tuning_choices()) else ""
        return f"{self} {HostClock().surroundings()}{tuned}" if self.kernels.is_measured else f"{self}{tuned}"

    def constraints(self) -> FusionConstraints:
        """Return the user's fusion constraints. Raises BadFusionEdge."""
        from shardc.passes.fuse.grouping.constraints import FusionConstraints  # reads MLIR's locations

        constraints = FusionConstraints.of(self.kernels.forbid_fusion, self.kernels.force_fusion)
        for edge in (*constraints.forbid, *constraints.force):
            if edge.first.number or edge.second.number:
                several = "numbers are unique within one program, and a model has several"
                raise BadFusionEdge(edge=edge.text, problem=f"{several}; name the ops by target and line")
        return constraints

    def target_of(self, device: torch.device) -> Target | None:
        """Return the target of a graph whose tensors are on ``device``; None if it gets no kernels.

        It is the target of the options, or else the device's own. If the options' target does not run on
        ``device``, a warning says so and there are no kernels. Raises UnknownTarget.
        """
        if not self.kernels.fuse:
            return None
        if self.kernels.target is None:
            return registry.target_for(device)
        target = registry.find_target(self.kernels.target)
        if target.takes(device):
            return target
        warn_once(OtherDevice(target=target.name, device=device))
        return None
