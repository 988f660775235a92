"""What a step does with batches of other shapes than the example's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardc.options.field import Group, Hint, option


@dataclass(frozen=True)
class Shapes(Group):
    """Options of how many programs a step may have, one for each shape of a batch.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, shapes_limit=2)
        >>> shorter = (batch[0][:5], batch[1][:5])
        >>> step(batch).shape, step(shorter).shape
        (torch.Size([]), torch.Size([]))
    """

    shapes_limit: int = option(
        8,
        "The most programs of one step: each new shape of a batch compiles one, the example's included. "
        "Those of step.evaluate, and those of step.forward, are counted by themselves.",
        at_least=1,
        only="compile_step",
        has_flag=False,
    )
    bucket: Callable[[Any], Any] | None = option(
        None,
        "Called with each batch before the step and step.evaluate; returns the batch to run, for instance "
        "padded to one of a few lengths, so that few shapes occur.",
        Hint("a function from a batch to a batch", "as in bucket=lambda batch: pad_to_multiple(batch, 64)"),
        only="compile_step",
        has_flag=False,
    )
