"""Options of a training step, and checks that need no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.diagnostics.passes.accumulate import OutputsOfMicroBatches
from shardc.diagnostics.passes.pipeline import NotAPipeline
from shardc.options.field import FrontEnd
from shardc.options.given import Given
from shardc.options.kernels import Kernels
from shardc.options.numerics import Numerics
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline
from shardc.options.results import Results
from shardc.options.shapes import Shapes


@dataclass(frozen=True)
class StepOptions:
    """Options of ``compile_step``. ``pipeline`` is None if none of its fields were given."""

    parallelism: Parallelism
    pipeline: Pipeline | None = None
    kernels: Kernels = field(default_factory=Kernels)
    numerics: Numerics = field(default_factory=Numerics)
    results: Results = field(default_factory=Results)
    shapes: Shapes = field(default_factory=Shapes)

    @staticmethod
    def of(given: Mapping[str, object], front_end: FrontEnd = "compile_step") -> StepOptions:
        """Read the options ``given`` and run the checks that need no model.

        Raises BadArgument, UnknownOption, OldSpelling, OptionElsewhere, BadMeshSpec, and the errors of
        invalid plans, schedules, targets or fusion edges.
        """
        read = Given(given, front_end)
        pipeline = read.group("pipeline", Pipeline) if read.has("pipeline") else None
        options = StepOptions(
            read.group("parallelism", Parallelism),
            pipeline,
            read.group("kernels", Kernels),
            read.group("numerics", Numerics),
            read.group("results", Results),
            read.group("shapes", Shapes),
        )
        options.check()
        return options

    def check(self) -> None:
        """Check options of several groups against each other."""
        axis, parallelism = self.parallelism.pipeline_axis(), self.parallelism
        if parallelism.per_micro_batch and self.results.outputs:
            raise OutputsOfMicroBatches()
        if self.pipeline is not None and not axis:
            raise NotAPipeline(plan=parallelism.plan)
        if axis in parallelism.mesh:
            (self.pipeline or Pipeline()).check(
                parallelism.mesh[axis], parallelism.micro_batches, parallelism.recompute
            )
        self.kernels.check_step()
