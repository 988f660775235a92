"""The ``pipe`` dialect: a step cut into stages, and the order in which ranks run them."""

from torch_mlir.dialects import ext

import shardc.dialects.dist.dialect  # noqa: F401  (tells the bindings where our dialects' modules are)


class Pipe(ext.Dialect, name="pipe"):
    """Level 3 of a pipeline: the stages of one micro-batch, and for each rank of the pipeline its program.

    A module holds a ``pipe.schedule``, a ``pipe.stage`` for each stage and kind of action, and for each rank
    ``r`` of the pipeline a function ``@step_r`` with what that rank holds as arguments: what comes before all
    micro-batches, the actions of the schedule in order between their sends and receives, and what comes after
    (reductions, the optimizer).
    """
