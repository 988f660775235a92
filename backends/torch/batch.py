"""Batching of calls of one flat kernel, such as an optimizer's updates, into one call with several tuples."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.backends.torch.kernels import KERNEL
from shardc.backends.torch.step import Step
from shardc.dialects.kern.kernel import kernel_name
from shardc.passes.fuse.bodies.flat import FLAT


def batch_kernels(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with independent calls of the same flat kernel joined.

    The joined call is at the position of the last of them. Nothing before it reads results of the others.
    """
    groups: list[list[int]] = []
    open_: dict[str, list[int]] = {}
    makers: dict[ir.Value, str] = {}

    def close(name: str) -> None:
        groups.append(open_.pop(name))
        for number in groups[-1]:
            for value in steps[number].results:
                del makers[value]

    for number, step in enumerate(steps):
        for value in step.operands:
            if value in makers:
                close(makers[value])
        if step.name == KERNEL and FLAT in step.op.attributes:
            name = kernel_name(step.op)
            open_.setdefault(name, []).append(number)
            makers.update(dict.fromkeys(step.results, name))
    groups += open_.values()
    together = {numbers[-1]: [steps[n] for n in numbers] for numbers in groups if len(numbers) > 1}
    earlier = {n for numbers in groups for n in numbers[:-1]}
    return [
        _joined(together[n]) if n in together else step for n, step in enumerate(steps) if n not in earlier
    ]


def _joined(members: list[Step]) -> Step:
    operands = [value for step in members for value in step.operands]
    results = [value for step in members for value in step.results]
    return Step(members[0].op, KERNEL, None, operands, results, members=tuple(members))
