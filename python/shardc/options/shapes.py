"""Options for batches whose shapes differ from the example's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardc.options.field import Group, Hint, option


@dataclass(frozen=True)
class Shapes(Group):
    """Options that limit the programs of a step, of which each batch shape needs one.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, shapes_limit=2)
        >>> shorter = (batch[0][:5], batch[1][:5])
        >>> step(batch).shape, step(shorter).shape
        (torch.Size([]), torch.Size([]))
    """

    shapes_limit: int = option(
        8,
        "Maximum number of programs of one step: each new shape of a batch compiles one, the "
        "example's included. Programs of step.evaluate and of step.forward are counted "
        "separately.",
        at_least=1,
        only="compile_step",
        has_flag=False,
    )
    bucket: Callable[[Any], Any] | None = option(
        None,
        "Function applied to each batch before the step and step.evaluate. It returns the batch "
        "to run, for instance padded to one of a few lengths, so that few shapes occur.",
        Hint("a function from a batch to a batch", "as in bucket=lambda batch: pad_to_multiple(batch, 64)"),
        only="compile_step",
        has_flag=False,
    )
