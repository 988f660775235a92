"""What a code object says of how it runs: its nested codes, builtins it may not get, sets whose order counts."""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

_BUILTIN_NAMES = frozenset(vars(builtins))


def nested_codes(code: types.CodeType) -> Iterable[types.CodeType]:
    """``code`` and the code objects of functions made in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested_codes(constant)


def hidden_builtins(code: types.CodeType, scope: Mapping[str, Any]) -> list[str]:
    """The names of builtins in a code that its globals give another meaning: no guard asks whether there are some."""
    names = {name for nested in nested_codes(code) for name in nested.co_names}
    return sorted(name for name in names & _BUILTIN_NAMES if name in scope)


def has_set_in_order(code: types.CodeType) -> bool:
    """Whether a code does more with a set of constants than to look a value up in it: go through it, say, in an order
    that differs between processes.
    """
    if not any(type(constant) is frozenset and len(constant) > 1 for constant in code.co_consts):
        return False
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "CACHE")]
    return any(
        type(step.argval) is frozenset and len(step.argval) > 1 and after.opname != "CONTAINS_OP"
        for step, after in pairwise(steps)
        if step.opname == "LOAD_CONST"
    )
