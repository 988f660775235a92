"""Steps move down, to right before what reads them, where the program's peak of memory is lower so.

Autograd makes a tied weight's first gradient at the start of a backward and adds the second one at its end:
between them the first takes memory that nothing reads.
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
"""Steps that are moved at most."""
TRIES = 4
"""Of what lies idle at the peak, so many of the largest are tried."""
WORTH = 1e-3
"""The share of the peak that a move must save."""


def postpone(
    steps: Sequence[Step], given: Sequence[ir.Value], kept: Collection[ir.Value], wanted: Iterable[ir.Value]
) -> list[Step]:
    """The steps in an order of a lower peak, if one was found. ``given`` are the block's arguments, of which
    those in ``kept`` stay whoever reads them; ``wanted`` is needed at the end. A step whose sizes are known
    only at run time leaves all as they are.
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
    """With one of them right before the first that reads it, or last."""
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
    """The most bytes at once, and the steps up to there with unread results, the largest first."""
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
    """Of each value the one whose memory it has: of a view what it shows, of a kernel's result that takes an
    operand's place that operand, where nothing reads it later.
    """
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
    """Whether nothing but its operands and results ties it to its place."""
    if step.name == KERNEL:
        return True
    if step.call is None or is_python_number(step.call.spec.target):
        return False
    return torch.Tag.nondeterministic_seeded not in overload(step.call.spec.target).tags and not shares(step)
