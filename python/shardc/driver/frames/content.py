"""What a value is, said so that another process can tell whether it has the same one: functions and classes by all
of their code, constants by their text, tensors by their metadata.
"""

from __future__ import annotations

import _abc
import abc
import enum
import functools
import hashlib
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._ordered_set import OrderedSet

from shardc.driver.frames.codes import hidden_builtins
from shardc.driver.frames.installed import is_installed, is_installed_module

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range)
TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_BUILTIN = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_FORMS = (type(typing.Union),)
"""Names of ``typing``, of which there is one each; in annotations."""
_UNREAD = (
    "__dict__", "__weakref__", "__doc__", "_abc_impl", "__annotations__", "__dataclass_fields__", "__slotnames__",
    "__abstractmethods__", "__static_attributes__",
)  # fmt: skip
"""Attributes of classes that differ between processes, or that no trace reads without a guard on them."""
_IDS = ("_torchdynamo_wrapper_id",)
"""Attributes of functions that are addresses."""
_MARKS = (
    "_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices",
    "_dynamo_strict_unbacked_indices", "_dynamo_static_indices", "_dynamo_hint_overrides", "_dynamo_shape_ids",
)  # fmt: skip
"""What ``torch._dynamo.mark_dynamic`` and its like leave on a tensor."""


_OF_MEMBERS = ("_value_", "_name_", "__objclass__", "_sort_order_")
"""What each member of an enum has beside the user's attributes."""


class NoContent(Exception):
    """A value that is itself and nothing else: another process cannot have the same one."""


class Contents:
    """Texts of values, each object's found once. ``codes`` are all code objects that were read on the way,
    ``constants`` the user's functions whose results Dynamo takes for constants (``assume_constant_result``).

    The objects whose text is remembered live as long as this does.
    """

    def __init__(self) -> None:
        self.codes: set[types.CodeType] = set()
        self.constants: list[str] = []
        self._texts: dict[int, str] = {}
        self._held: list[object] = []

    def of(self, value: Any) -> str:
        """The content of a value that a guard compares by identity or equality. Raises NoContent."""
        if type(value) in PLAIN or type(value) in TORCH:
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, types.CodeType):
            return self._once(value, self._code)
        if isinstance(value, types.FunctionType):
            return self._once(value, self._function)
        if isinstance(value, type):
            return self._once(value, self._class)
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__} {getattr(value, '__file__', None)}"
        if isinstance(value, _BUILTIN):
            return self._builtin(value)
        if isinstance(value, enum.Enum):
            return f"{self.of(type(value))}.{self._member(value)}"
        if type(value) in (tuple, list):
            return f"{type(value).__name__}({', '.join(map(self.of, value))})"
        if type(value) in (set, frozenset):
            return f"{type(value).__name__}({', '.join(map(self.of, value))})"  # a trace may have gone through it
        if type(value) is slice:
            return f"slice({self.of(value.start)}, {self.of(value.stop)}, {self.of(value.step)})"
        if isinstance(value, types.MethodType) and isinstance(value.__self__, type):
            return f"method {self.of(value.__func__)} of {self.of(value.__self__)}"
        if isinstance(value, _FORMS):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            return f"op {value}"
        raise NoContent(type(value).__qualname__)

    def or_type(self, value: Any) -> str:
        """The content of a value; where it has none, that of its type, with what a container holds.

        Dynamo has no guards on what it reaches through a property, a class made in the frame or their methods, and
        writes what it finds there (``SourcelessBuilder``) into the trace as it is.
        """
        if isinstance(value, _CONTAINERS):
            return self._once(value, self._container)
        if isinstance(value, re.Pattern):
            return f"pattern {value.pattern!r} {value.flags}"
        try:
            return self.of(value)
        except NoContent:
            return f"a {self.of(type(value))}"

    def tensor(self, value: torch.Tensor) -> str:
        """All that a trace may know of a tensor but its elements."""
        marks = [(mark, getattr(value, mark)) for mark in _MARKS if hasattr(value, mark)]
        if marks:
            raise NoContent("a tensor with marks about its sizes")
        fields = (
            self.of(type(value)), value.dtype, value.device, value.requires_grad, tuple(value.shape), value.stride(),
            value.layout, value.is_leaf, torch._C._dispatch_keys(value).raw_repr(),
        )  # fmt: skip
        return f"tensor {fields}"

    def _once(self, value: Any, describe: Callable[[Any], str]) -> str:
        known = self._texts.get(id(value))
        if known is None:
            self._held.append(value)
            self._texts[id(value)] = f"again {getattr(value, '__qualname__', '')}"  # met inside of itself
            known = self._texts[id(value)] = describe(value)
        return known

    def _code(self, code: types.CodeType) -> str:
        self.codes.add(code)
        constants = [self._constant(c) for c in code.co_consts]
        fields = (
            code.co_filename, code.co_firstlineno, code.co_qualname, code.co_flags, code.co_code, constants,
            code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars, code.co_argcount,
            code.co_posonlyargcount, code.co_kwonlyargcount, code.co_linetable, code.co_exceptiontable,
        )  # fmt: skip
        return digest([repr(fields)])

    def _constant(self, value: Any) -> str:
        """Of a code: a set by its members, for their order differs between processes (``has_set_in_order``)."""
        return f"frozenset({sorted(map(self.of, value))})" if type(value) is frozenset else self.of(value)

    def _container(self, value: Any) -> str:
        kind = self.of(type(value))
        if isinstance(value, functools.partial):
            value = [value.func, *value.args, value.keywords]
        if isinstance(
            value, dict | types.MappingProxyType
        ):  # what a subclass makes of its items may run anything
            items = dict.items(value) if isinstance(value, dict) else value.items()
            value = [part for item in list(items) for part in item]
        return digest([kind, *map(self.or_type, value)])

    def _member(self, member: enum.Enum) -> str:
        attributes = {name: value for name, value in vars(member).items() if name not in _OF_MEMBERS}
        return f"{member.name} {self.or_type(member.value)} {self.or_type(attributes)}"

    def _function(self, function: types.FunctionType) -> str:
        parts = [function.__module__ or "", function.__qualname__, self.of(function.__code__)]
        parts += hidden_builtins(function.__code__, function.__globals__)
        if "_dynamo_marked_constant" in function.__dict__ and not is_installed(function.__code__.co_filename):
            self.constants.append(function.__qualname__)
        parts += [self.or_type(value) for value in function.__defaults__ or ()]
        parts += [f"{name}={self.or_type(value)}" for name, value in (function.__kwdefaults__ or {}).items()]
        for cell in function.__closure__ or ():
            try:
                parts.append(self.or_type(cell.cell_contents))
            except ValueError:
                parts.append("empty")
        parts += [
            f"{name}:{self.or_type(value)}" for name, value in function.__dict__.items() if name not in _IDS
        ]
        return digest(parts)

    def _class(self, cls: type) -> str:
        parts = [cls.__module__, cls.__qualname__, str(cls.__flags__ & _HEAP), self._metaclass(cls)]
        if cls.__flags__ & _HEAP:
            parts += [self.of(base) for base in cls.__bases__]
            parts += [
                f"{name}:{self._attribute(v)}"
                for name, v in list(cls.__dict__.items())
                if name not in _UNREAD
            ]
            if isinstance(cls, abc.ABCMeta) and not is_installed_module(cls.__module__):
                registered = (reference() for reference in _abc._get_dump(cls)[0])
                parts += sorted(f"{c.__module__}.{c.__qualname__}" for c in registered if c is not None)
            if isinstance(cls, enum.EnumMeta):
                parts += [self._member(member) for member in cls.__members__.values()]
        return digest(parts)

    def _metaclass(self, cls: type) -> str:
        return "" if type(cls) is type else self.of(type(cls))

    def _attribute(self, value: Any) -> str:
        """What stands in a class."""
        if isinstance(value, property):
            return f"property({', '.join(self.or_type(f) for f in (value.fget, value.fset, value.fdel))})"
        if isinstance(value, staticmethod | classmethod):
            return f"{type(value).__name__}({self.or_type(value.__func__)})"
        return self.or_type(value)

    def _builtin(self, value: Any) -> str:
        owner = getattr(value, "__self__", None)
        owner = getattr(value, "__objclass__", None) if owner is None else owner
        where = owner.__name__ if isinstance(owner, types.ModuleType | type) else None
        if owner is not None and where is None:
            raise NoContent(f"{type(value).__qualname__} of an object")
        return f"{type(value).__name__} {getattr(value, '__module__', None)} {where} {value.__name__}"


_CONTAINERS = (tuple, list, set, frozenset, dict, OrderedSet, types.MappingProxyType, functools.partial)
_HEAP = 1 << 9
"""``Py_TPFLAGS_HEAPTYPE``: a class whose attributes Python code can set."""


def digest(parts: Iterable[str]) -> str:
    """A hash of texts, in their order."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode(errors="surrogatepass") + b"\0")
    return found.hexdigest()[:32]
