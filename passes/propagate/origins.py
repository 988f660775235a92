"""Origins of shardings as text: the annotated value that a sharding follows, and the ops between."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.location import source_line
from shardc.passes.manager.program import Node, Program
from shardc.passes.propagate.state import PropagationState

NAMED_OPS = 3
"""Up to this many ops of a chain are all named."""


def origin_of(program: Program, state: PropagationState, value: int) -> str:
    """Return the origin of a value's sharding: ``self`` if annotated, ``none`` if replicated, else a text.

    An example is ``follows 0.weight (tensor), through lerp at optimizer:AdamW``; the line is that of the last
    op. For a sharding of several axes it is the origin of the first.
    """
    used = state.sharding(value).used
    return _origin(program, state, value, used[0].name) if used else "none"


def origins_of_axes(program: Program, state: PropagationState, value: int) -> list[str]:
    """Such as ``tensor follows 0.weight (tensor)``, for each axis that came to an argument of a plan."""
    names = dict.fromkeys(axis.name for axis in state.sharding(value).used)
    came = [name for name in names if state.came(value, name) is not None]
    return [f"{name} {_origin(program, state, value, name)}" for name in came]


def _origin(program: Program, state: PropagationState, value: int, axis: str) -> str:
    ops: list[Node] = []
    root = value
    while (came := state.came(root, axis)) is not None:
        root, number = came
        ops += [program.nodes[number]] if number >= 0 else []
    if root == value:
        return "self"
    producer = program.producer[root]
    if producer >= 0 and ops and ops[-1] is program.nodes[producer]:
        ops.pop()  # the constraint itself
    follows = f"follows {_root(program, root)}"
    return f"{follows}, through {_through(ops)}" if ops else follows


def _root(program: Program, value: int) -> str:
    if value not in program.arguments:
        op = program.nodes[program.producer[value]].op
        name = (
            "a constraint" if op.name == "dist.constraint" else _name(program.nodes[program.producer[value]])
        )
        line = source_line(op.location)
        return f"{name} ({line})" if line else name
    position = program.arguments.index(value)
    role, name = program.argument_key(position)
    why = program.attribute(position, "dist.why")
    name = (f"input {name}" if role == "input" else name) or f"argument {position}"
    return f"{name} ({ir.StringAttr(why).value})" if why is not None else name


def _through(ops: list[Node]) -> str:
    """Describe a chain of ops, from the annotated value on: all names, or their number and the last name."""
    names = list(dict.fromkeys(_name(node) for node in reversed(ops)))
    if len(names) > NAMED_OPS:
        text = f"{len(ops)} ops, the last of them {_name(ops[0])}"
    else:
        text = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    line = source_line(ops[0].op.location)
    return f"{text} at {line}" if line else text


def _name(node: Node) -> str:
    """Return a short name: ``lerp`` for ``aten.lerp.Tensor``."""
    return node.spec.target.partition(".")[2].partition(".")[0] or node.spec.target
