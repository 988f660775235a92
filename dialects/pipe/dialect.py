"""The ``pipe`` dialect: the stages of a step, and the order in which ranks run them."""

from torch_mlir.dialects import ext

import shardc.dialects.dist.dialect  # noqa: F401  (tells the bindings where our dialects' modules are)


class Pipe(ext.Dialect, name="pipe"):
    """Level 3 of a pipeline: the stages of one micro-batch, and for each rank of the pipeline its program.

    A module holds a ``pipe.schedule``, a ``pipe.stage`` for each stage and kind of action, and a function
    ``@step_r`` for each rank ``r`` of the pipeline. The function's arguments are the values that the rank
    holds. Its body is the work before all micro-batches, then the schedule's actions in order, with their
    sends and receives, and then the work after them (reductions, the optimizer).
    """
