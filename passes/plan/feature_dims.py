"""Features of inputs [batch, time, feature] or [batch, feature, time]: the dim that a layer sums over."""

from __future__ import annotations

from collections import deque

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program
from shardc.passes.propagate.blocks import factors_of, same_dims

_LAYERS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.matmul", "aten.convolution", "aten.linear")


def feature_dims(program: Program) -> dict[str, int]:
    """Return the dim of features, 1 or 2, of each input of three dims.

    Follows both dims through the forward to the first linear layers and convolutions. Inputs of which layers
    sum over none of the two, or over both, are left out.
    """
    found: dict[str, int] = {}
    for position, value in enumerate(program.arguments):
        role, name = program.argument_key(position)
        type_ = program.types[value]
        if role == "input" and len(type_.shape) == 3 and type_.dtype.is_floating_point:
            summed = [dim for dim in (1, 2) if _is_summed(program, value, dim)]
            if len(summed) == 1:
                found[name] = summed[0]
    return found


def _is_summed(program: Program, value: int, dim: int) -> bool:
    """Return whether the first layers that read a dim as it is sum over it."""
    queue, seen = deque([(value, dim)]), {(value, dim)}
    while queue:
        here, d = queue.popleft()
        for node in (program.nodes[number] for number in program.users[here]):
            if phase_of(node.op) != "forward":
                continue
            own = factors_of(node, here, d)
            if node.spec.target in _LAYERS:
                if any(f in node.rule.reduce for factors in own for f in factors):
                    return True
                continue
            new = {place for factors in own for place in same_dims(node, factors)} - seen
            seen |= new
            queue.extend(new)
    return False
