"""Python state that a trace reads and a compiled step would not read again: attributes and random draws.

A forward that changes attributes of its modules is traced twice in a row. If the second run computes the
same, the attributes are a cache. If it differs, or if a number keeps changing, a compiled step would be
wrong.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from shardc.diagnostics.frontend import FrozenValue
from shardc.frontend.importing.recorder import FRAMES
from shardc.frontend.nodes import node_at, outputs
from shardc.frontend.step.hooks import line_of_code
from shardc.runtime.torch_private import FakeTensor

Values = dict[tuple[str, str], object]
"""Python values of modules, by the module's path and the attribute's name."""
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
DEEPEST, LONGEST = 3, 1000
"""Limits of the comparison: nesting depth of an attribute, and number of values."""
SHOWN = 3
_SAME = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)
"""Ops that do not change values; a traced layer has more of them than a copied one."""


@dataclass(frozen=True, eq=False)
class Thing:
    """Object that counts as changed if another object replaces it."""

    held: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)

    def __str__(self) -> str:
        return f"a {type(self.held).__name__}"


@dataclass(frozen=True)
class GeneratorState:
    """State of a random generator that a module holds."""

    state: object

    def __str__(self) -> str:
        return "a generator's state"


def python_values(modules: Mapping[str, torch.nn.Module]) -> Values:
    """Return attributes of all modules, with items of lists and dicts, and generators as states."""
    found: Values = {}
    for path, module in modules.items():
        for name, value in vars(module).items():
            found |= {(path, inner): leaf for inner, leaf in islice(_leaves(name, value), LONGEST)}
    return found


def modules_of(model: torch.nn.Module, loss: object) -> dict[str, torch.nn.Module]:
    """Return all modules of a step by path, such as ``layers.0``; the model itself is ``model``."""
    found = {name or "model": module for name, module in model.named_modules()}
    own = loss.named_modules(prefix="loss") if isinstance(loss, torch.nn.Module) else ()
    return found | dict(own)


def generator_states() -> dict[str, object]:
    """Return the states of random generators outside PyTorch."""
    return {"Python's random": random.getstate(), "numpy.random": repr(np.random.get_state(legacy=False))}


def drawn(before: Mapping[str, object]) -> str | None:
    """Return the first generator whose state differs from ``before``."""
    return next((name for name, state in generator_states().items() if state != before[name]), None)


def restore(states: Mapping[str, Any]) -> None:
    """Give Python's generator its state in ``states`` again, so that a trace leaves no draw behind."""
    random.setstate(states["Python's random"])


def changes(before: Values, after: Values) -> list[tuple[str, str]]:
    """Return the keys of changed values, in order; ``after`` may have more."""
    absent = object()
    pairs = ((key, before.get(key, absent), after.get(key, absent)) for key in {**before, **after})
    return [key for key, old, new in pairs if old is not new and old != new]


def check_same(
    first: GraphModule,
    second: GraphModule,
    values: Sequence[Values],
    modules: Mapping[str, torch.nn.Module],
) -> None:
    """Raise FrozenValue unless a second step computes the same as the first and no number changes.

    ``values``: Python values before the first forward, between the two, and after the second.
    """
    before, between, after = values
    where = _difference(first, second)
    if where is not None:
        raise FrozenValue(changes=told(before, between), where=where)
    for key in changes(between, after):
        if not isinstance(after.get(key), Thing):
            old, new = ({key: values[key]} if key in values else {} for values in (between, after))
            raise FrozenValue(changes=told(old, new), where=line_of_code(type(modules[key[0]]).forward))


def told(before: Values, after: Values, when: str = "before a forward", then: str = "after it") -> str:
    """Describe the first changes."""
    found = []
    for path, name in changes(before, after)[:SHOWN]:
        held = (
            str(values[path, name])[:40] if (path, name) in values else "absent" for values in (before, after)
        )
        old, new = held
        change = "it changes" if old == new else f"{old} {when}, {new} {then}"
        found.append(f"{path}.{name} ({change})")
    return "; ".join(found) or "time, or numbers from outside of PyTorch"


def _leaves(name: str, value: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    if isinstance(value, random.Random):
        yield name, GeneratorState(value.getstate())
    elif isinstance(value, np.random.Generator):
        yield name, GeneratorState(repr(value.bit_generator.state))
    elif isinstance(value, dict | list | tuple) and depth < DEEPEST:
        yield name, f"{len(value)} of a {type(value).__name__}"
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(f"{name}[{key!r}]", item, depth + 1)
    elif not isinstance(value, weakref.ref):  # such as an LSTM's references to its weights, which are renewed
        yield name, value if isinstance(value, PLAIN) else Thing(value)


def _difference(first: GraphModule, second: GraphModule) -> str | None:
    """Return the line of the first node of ``second`` that ``first`` lacks, if their results differ."""
    known: dict[str, int] = {}
    numbers = [_numbered(module, known) for module in (first, second)]
    results = [
        [own[node] if isinstance(node, Node) else None for node in outputs(module.graph)]
        for own, module in zip(numbers, (first, second), strict=True)
    ]
    if results[0] == results[1]:
        return None
    old = set(numbers[0].values())
    fresh = (n for n, number in numbers[1].items() if number not in old and FRAMES in n.meta)
    frames = next((node.meta[FRAMES] for node in fresh), (("<unknown>", 0),))
    return f"{frames[0][0]}:{frames[0][1]}"


def _numbered(module: GraphModule, known: dict[str, int]) -> dict[Node, int]:
    """Number the nodes so that equal computations have equal numbers."""
    numbers: dict[Node, int] = {}
    inputs = 0
    for node in module.graph.nodes:
        if node.target in _SAME:
            numbers[node] = numbers[node_at(node)]
            continue
        if node.op == "placeholder":
            key, inputs = f"input {inputs}", inputs + 1
        elif node.op == "get_attr":
            key = _constant(getattr(module, str(node.target)))
        else:
            held = map_arg((node.args, node.kwargs), lambda n: _Number(numbers[n]))
            key = f"{node.target} {held!r}"
        numbers[node] = known.setdefault(key, len(known))
    return numbers


class _Number(str):
    """Number that replaces a node in another node's text."""

    def __new__(cls, number: int) -> _Number:
        return super().__new__(cls, f"%{number}")


def _constant(value: torch.Tensor) -> str:
    """Return a constant's values, or its identity."""
    if isinstance(value, FakeTensor) or value.is_meta or value.numel() > LONGEST:
        return f"constant {id(value)}"
    return f"constant {value.dtype} {list(value.shape)} {value.tolist()}"
