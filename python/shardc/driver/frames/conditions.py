"""What Dynamo's guards ask of a frame, in a form that another process can ask its own frame.

A guard is kept as where its value is found, the kind of guard, and what it says of the value. Another process finds the
value in its own frame and says the same of it: if all texts are equal, the frame is one that the trace is for, and the
guards of this process are built from the frame's own values, as Dynamo builds them, identities included.

Dynamo leaves some guards out of what it checks at each call (hooks of modules), trusting that nothing changed since the
trace. Here they are all asked, for much may have changed since another process.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._dynamo.guards import GuardBuilder, _get_closure_vars
from torch._guards import Guard, Source

from shardc.driver.frames.content import PLAIN, TORCH, Contents, NoContent

Condition = tuple[Source, str, dict[str, Any]]
"""Where the value is, the guard's kind, and the kind's own arguments."""

_EXACT = (
    "ID_MATCH", "FUNCTION_MATCH", "CLASS_MATCH", "MODULE_MATCH", "CLOSURE_MATCH", "BUILTIN_MATCH", "CONSTANT_MATCH",
    "EQUALS_MATCH", "BOOL_MATCH", "NONE_MATCH",
)  # fmt: skip
_OF_THE_PROCESS = (
    "GRAD_MODE", "DETERMINISTIC_ALGORITHMS", "GLOBAL_STATE", "TORCH_FUNCTION_STATE", "DEFAULT_DEVICE", "DUAL_LEVEL",
    "FUNCTORCH_STACK_MATCH", "AUTOGRAD_SAVED_TENSORS_HOOKS",
)  # fmt: skip
"""About no value of the frame. What they look at is part of a frame's name (``cache.py``)."""
_FIXED = (
    *PLAIN, *TORCH, tuple, frozenset, enum.Enum, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip
"""Of these it does not count which of two equal ones a name has."""
_VALUES = ("value", "recompile_hint")
"""Arguments of kinds that are the value itself, or words for the user."""


def conditions(made: Iterable[Guard]) -> list[Condition]:
    """Raises NoContent for a guard with arguments that are unknown."""
    found = []
    for guard in sorted(made, key=Guard.sort_key):
        create, arguments = guard.create_fn, {}
        if isinstance(create, functools.partial):
            if create.args:
                raise NoContent(f"arguments of {guard.create_fn_name()}")
            arguments = {name: value for name, value in create.keywords.items() if name not in _VALUES}
        found.append((guard.originating_source, guard.create_fn_name(), arguments))
    return found


class Frame:
    """The values of a frame that guards name. ``contents`` has met what they are made of."""

    def __init__(self, variables: dict[str, Any], scope: dict[str, Any]) -> None:
        self.variables, self.scope, self.contents = variables, scope, Contents()
        self._found: dict[Source, Any] = {}
        self._met: dict[int, tuple[int, object]] = {}

    def value(self, source: Source) -> Any:
        """Raises whatever reading it raises."""
        return source.get_value({"L": self.variables, "G": self.scope}, _get_closure_vars(), self._found)

    def answers(self, asked: Sequence[Condition]) -> Iterable[bytes]:
        """A hash of what each condition says of this frame. Raises NoContent, or what reading a value raises."""
        for condition in asked:
            text = self._answer(*condition) + self._which(*condition[:2])
            yield hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()

    def _which(self, source: Source, kind: str) -> str:
        """The number of an object that can change, in the order in which they are met: a trace may depend on two
        names being of one object, which no guard says."""
        if kind in _OF_THE_PROCESS or kind == "SHAPE_ENV" or isinstance(value := self.value(source), _FIXED):
            return ""
        return f" object {self._met.setdefault(id(value), (len(self._met), value))[0]}"

    def _answer(self, source: Source, kind: str, arguments: dict[str, Any]) -> str:
        if kind in _OF_THE_PROCESS or kind == "SHAPE_ENV":
            return kind
        value, contents = self.value(source), self.contents
        if kind in _EXACT:
            return contents.of(value)
        if kind == "TENSOR_MATCH":
            return contents.tensor(value)
        if kind == "TYPE_MATCH":
            return contents.of(type(value)) + (
                _structure(value) if isinstance(value, torch.nn.Module) else ""
            )
        if kind == "DUPLICATE_INPUT":
            return str(value is self.value(arguments["source_b"]))
        if kind not in _ASKED:
            raise NoContent(f"a guard {kind}")
        return f"{[f'{k}={contents.of(v)}' for k, v in arguments.items()]} {_ASKED[kind](contents, value, **arguments)}"


def _structure(module: torch.nn.Module) -> str:
    """The names of a module's attributes, submodules, parameters and buffers."""
    return repr(
        [list(names) for names in (module.__dict__, module._modules, module._parameters, module._buffers)]
    )


def _keys(contents: Contents, value: Any) -> str:
    return f"{contents.of(type(value))} {[contents.of(key) for key in value]}"


def _length(contents: Contents, value: Any) -> str:
    return f"{contents.of(type(value))} {len(value)}"


_ASKED: dict[str, Callable[..., object]] = {
    "HASATTR": lambda _, value, attr: hasattr(value, attr),
    "NOT_PRESENT_IN_GENERIC_DICT": lambda _, value, attr: attr in value.__dict__,
    "DICT_CONTAINS": lambda _, value, key: key in value,
    "DICT_NOT_CONTAINS": lambda _, value, key: key in value,
    "SET_CONTAINS": lambda _, value, key: key in value,
    "SET_NOT_CONTAINS": lambda _, value, key: key in value,
    "NOT_NONE_MATCH": lambda _, value: value is None,
    "SEQUENCE_LENGTH": _length,
    "EMPTY_NN_MODULE_HOOKS_DICT": _length,
    "DICT_KEYS_MATCH": _keys,
    "MAPPING_KEYS_CHECK": _keys,
}


def guards(asked: Iterable[Condition]) -> list[Guard]:
    """Dynamo's guards of conditions."""
    return [Guard(source, _create(kind, arguments)) for source, kind, arguments in asked]


def _create(kind: str, arguments: dict[str, Any]) -> Callable[..., None]:
    create = getattr(GuardBuilder, kind)
    return functools.partial(create, **arguments) if arguments else create
