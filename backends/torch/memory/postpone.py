"""Postponing of steps to right before their first use, if that lowers the peak memory.

For example, autograd computes a tied weight's first gradient at the start of backward, and adds the second
one at its end. In between, the first one occupies memory that nothing reads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import torch
from torch_mlir import ir

from shardc.backends.torch.kernels import KERNEL
from shardc.backends.torch.memory.aliases import shares
from shardc.backends.torch.step import Step, size_bytes
from shardc.dialects.aten.python_numbers import is_python_number
from shardc.dialects.aten.schema import overload
from shardc.dialects.aten.types import read_type
from shardc.dialects.kern.kernel import in_place

MOVES = 8
"""Maximum number of steps to move."""
TRIES = 4
"""Number of the largest idle values at the peak to try."""
WORTH = 1e-3
"""Share of the peak that a move must save."""


def postpone(
    steps: Sequence[Step], given: Sequence[ir.Value], kept: Collection[ir.Value], wanted: Iterable[ir.Value]
) -> list[Step]:
    """Return the steps in an order with a lower peak, if one is found.

    ``given``: the block's arguments. ``kept``: arguments that stay alive. ``wanted``: values needed at the
    end. If any step's sizes are known only at run time, the order does not change.
    """
    steps = list(steps)
    sizes = {v: size_bytes(read_type(v.type)) for v in (*given, *(r for s in steps for r in s.results))}
    if math.inf in sizes.values():
        return steps
    wanted = set(wanted)
    peak, idle = _peak(steps, given, kept, wanted, sizes)
    for _ in range(MOVES):
        for position in idle[:TRIES]:
            moved = _moved(steps, position, wanted)
            lower, others = _peak(moved, given, kept, wanted, sizes)
            if lower < peak * (1 - WORTH):
                steps, peak, idle = moved, lower, others
                break
        else:
            break
    return steps


def _moved(steps: list[Step], position: int, wanted: Collection[ir.Value]) -> list[Step]:
    """Move a step right before its first reader, or to the end."""
    step = steps[position]
    made, after = set(step.results), range(position + 1, len(steps))
    reader = next((i for i in after if not made.isdisjoint(steps[i].operands)), len(steps))
    return [*steps[:position], *steps[position + 1 : reader], step, *steps[reader:]]


def _peak(
    steps: list[Step],
    given: Sequence[ir.Value],
    kept: Collection[ir.Value],
    wanted: Collection[ir.Value],
    sizes: dict[ir.Value, float],
) -> tuple[float, list[int]]:
    """Return the peak bytes, and the steps before it whose results are not read yet, the largest first."""
    roots = _roots(steps, given)
    last: dict[ir.Value, int] = {}
    first: dict[ir.Value, int] = {}
    for position, step in enumerate(steps):
        for value in step.operands:
            last[roots[value]] = position
            first.setdefault(value, position)
    last.update((roots[v], len(steps)) for v in (*wanted, *kept) if v in roots)
    live = {roots[v]: sizes[v] for v in given}
    now = peak = sum(live.values())
    at, alive = 0, set(live)
    ending: defaultdict[int, list[ir.Value]] = defaultdict(list)
    for root, position in last.items():
        ending[position].append(root)
    for position, step in enumerate(steps):
        for value in step.results:
            if roots[value] not in live:
                live[roots[value]] = sizes[value]
                now += sizes[value]
        if now > peak:
            peak, at, alive = now, position, set(live)
        for root in (*ending[position], *(roots[v] for v in step.results if roots[v] not in last)):
            now -= live.pop(root, 0)
    idle = [
        (-sum(sizes[v] for v in step.results), position)
        for position, step in enumerate(steps[: at + 1])
        if _is_movable(step)
        and any(roots[v] in alive for v in step.results)
        and all(first.get(v, len(steps)) > at for v in step.results)
    ]
    return peak, [position for _, position in sorted(idle)]


def _roots(steps: list[Step], given: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
    """Return value -> the owner of its memory: a view's source, or the operand that a result overwrites."""
    roots = {v: v for v in given}
    read_last = {v: position for position, step in enumerate(steps) for v in step.operands}
    for position, step in enumerate(steps):
        for value in step.operands:
            roots.setdefault(value, value)
        for value in step.results:
            roots[value] = roots[step.operands[0]] if step.operands and shares(step) else value
        if step.name == KERNEL and not step.members:
            for result, operand in in_place(step.op).items():
                if read_last[step.operands[operand]] == position:
                    roots[step.results[result]] = roots[step.operands[operand]]
    return roots


def _is_movable(step: Step) -> bool:
    """Return True if only its operands and results constrain the step's position."""
    if step.name == KERNEL:
        return True
    if step.call is None or is_python_number(step.call.spec.target):
        return False
    return torch.Tag.nondeterministic_seeded not in overload(step.call.spec.target).tags and not shares(step)
