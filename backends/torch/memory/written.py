"""Calls that write a part of a tensor, as writes to that tensor's memory where nothing else reads it.

A trace has them out of place: ``index_copy`` makes a copy of its first operand, with other numbers at some
places. A cache of keys that takes one more token would be copied for each of them.
"""

from __future__ import annotations

from dataclasses import replace

from shardc.backends.torch.functions import Functions
from shardc.backends.torch.kernels import KERNEL
from shardc.backends.torch.memory.aliases import shares
from shardc.backends.torch.memory.schedule import Schedule
from shardc.backends.torch.step import Step
from shardc.dialects.aten.call import OpCall

_IN_PLACE = frozenset(
    f"aten.{name}"
    for name in (
        *("index_add", "index_copy", "index_fill.int_Scalar", "index_fill.int_Tensor", "index_put"),
        *("masked_scatter", "scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two"),
    )
)
"""Calls with a form that ends in ``_``."""
_PARTS = {"aten.slice_scatter": "aten.slice.Tensor", "aten.select_scatter": "aten.select.int"}
"""Calls that write to a view of their operand, and the call that makes the view."""


def writes_a_part(step: Step) -> bool:
    """Return True if the step's result is its first operand with other numbers at some places."""
    return step.call is not None and step.call.spec.target in {*_IN_PLACE, *_PARTS}


def owns_memory(step: Step, schedule: Schedule) -> bool:
    """Return True if a step of the block made the first operand, in memory without views of less memory."""
    made = schedule.made.get(step.operands[0])
    if made is None:
        return False
    maker = schedule.steps[made]
    return maker.name == KERNEL or (maker.call is not None and not shares(maker))


def write_in_place(functions: Functions, spec: OpCall, operands: list[str]) -> str:
    """Return the text of the call, after which the first of ``operands`` holds its result."""
    if spec.target in _IN_PLACE:
        _, base, *variant = spec.target.split(".")
        return functions.call(replace(spec, target=".".join(("aten", f"{base}_", *variant))), operands)
    into, source, *rest = operands
    view = OpCall(_PARTS[spec.target], (spec.args[0], *spec.args[2:]), spec.results)
    return f"{functions.call(view, [into, *rest])}.copy_({source})"
