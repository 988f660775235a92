"""The options of the ``torch.compile`` backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardc.backends.benchmark.benchmark import surroundings
from shardc.diagnostics.fusion import BadFusionEdge
from shardc.options.given import Given
from shardc.options.kernels import Kernels
from shardc.options.numerics import Numerics
from shardc.options.targets import check_target
from shardc.tuner.database.place import tuning_choices

if TYPE_CHECKING:
    from shardc.passes.fuse.grouping.constraints import FusionConstraints


@dataclass(frozen=True)
class Settings:
    """The options of one ``torch.compile(backend="shardc")``."""

    kernels: Kernels = field(default_factory=Kernels)
    numerics: Numerics = field(default_factory=Numerics)

    @staticmethod
    def of(options: Mapping[str, object]) -> Settings:
        """``options`` by groups and by fields' names.

        Raises BadArgument, UnknownOption, OldSpelling, OptionElsewhere, BadFusionEdge,
        UnknownTarget.
        """
        given = Given(options, "torch.compile", ("kernels", "numerics"))
        settings = Settings(given.group("kernels", Kernels), given.group("numerics", Numerics))
        if settings.kernels.target is not None:
            check_target(settings.kernels.target)
        if settings.kernels.has_edges:
            settings.constraints()
        return settings

    def cache_key(self) -> str:
        """All of the settings, of what benchmarks decided under them, and of how kernels are tuned, that a
        program depends on.
        """
        tuned = f" tuned {choices}" if self.kernels.fuse and (choices := tuning_choices()) else ""
        return f"{self} {surroundings()}{tuned}" if self.kernels.is_measured else f"{self}{tuned}"

    def constraints(self) -> FusionConstraints:
        """What the user wants of fusion. Raises BadFusionEdge."""
        from shardc.passes.fuse.grouping.constraints import FusionConstraints  # reads MLIR's locations

        constraints = FusionConstraints.of(self.kernels.forbid_fusion, self.kernels.force_fusion)
        for edge in (*constraints.forbid, *constraints.force):
            if edge.first.number or edge.second.number:
                problem = (
                    "numbers are those of one program, and a model has several; name the ops by "
                    "target and line"
                )
                raise BadFusionEdge(edge=edge.text, problem=problem)
        return constraints
