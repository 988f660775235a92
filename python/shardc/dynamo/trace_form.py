"""AOTAutograd's form of a trace as JSON instead of pickle, so that reading it calls no code.

Objects are dataclasses and enumerations of the modules listed here, stored as their fields. An entry with any
other object is rejected (:class:`NoTrace`).
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any

import numpy as np
import torch

from shardc.runtime import torch_private

Form = Any
"""JSON. A value other than a number, text, list or null is an object with one key, its kind."""

_OURS = ("shardc.dynamo.program", "shardc.dynamo.cuda_graph", "shardc.frontend.graph.host_scalars")
_WORDS = (torch.dtype, torch.layout, torch.memory_format)
"""Types whose values are stored as their text, such as ``torch.float32``."""


class NoTrace(Exception):
    """A value cannot be stored, or JSON cannot be read; the message says why."""


def written(trace: object) -> bytes:
    """Serialize a trace. Raises NoTrace."""
    return json.dumps(_form(trace)).encode()


def read(content: bytes) -> object:
    """Deserialize a trace. Raises NoTrace."""
    try:
        return _value(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise NoTrace(f"{type(error).__name__}: {error}") from None


def _form(value: Any) -> Form:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_form(part) for part in value]
    if kind in _PARTS:
        return {kind.__name__: [_form(part) for part in value]}
    if kind in (dict, OrderedDict) or (kind is defaultdict and value.default_factory is list):
        return {kind.__name__: [[_form(key), _form(part)] for key, part in value.items()]}
    if kind in _WORDS:
        return {"word": str(value).removeprefix("torch.")}
    if kind is torch.device:
        return {"device": str(value)}
    if kind is torch.Tensor:
        return {"tensor": _tensor_form(value)}
    if isinstance(value, type) and issubclass(value, torch.Tensor):
        return {"type": [value.__module__, value.__qualname__]}
    if isinstance(value, Enum):
        return {"enum": [*_listed(kind), value.name]}
    if kind.__qualname__ == torch_private.GRAPH_FORM[1] and kind.__module__ == torch_private.GRAPH_FORM[0]:
        return {"graph": [_form(part) for part in value.args]}
    if is_dataclass(value):
        return {"object": [*_listed(kind), {name: _form(part) for name, part in _fields(value).items()}]}
    raise NoTrace(f"a {kind.__module__}.{kind.__qualname__} has no form")


def _fields(value: Any) -> dict[str, object]:
    if hasattr(value, "__dict__"):
        return vars(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _listed(kind: type) -> tuple[str, str]:
    """Return a class's module and name. Raises NoTrace for a class that is not allowed."""
    if _class(kind.__module__, kind.__qualname__) is not kind:
        raise NoTrace(f"{kind.__module__}.{kind.__qualname__} is not listed")
    return kind.__module__, kind.__qualname__


def _tensor_form(value: torch.Tensor) -> list[Form]:
    """Return dtype, shape and bytes of a graph's constant."""
    if value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad:
        raise NoTrace(f"a tensor of {value.device} has no form")
    content = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [_form(value.dtype), list(value.shape), base64.b64encode(content).decode()]


def _value(form: Form) -> Any:
    if isinstance(form, list):
        return [_value(part) for part in form]
    if not isinstance(form, dict):
        return form
    ((kind, content),) = form.items()
    return _READERS[kind](content)


def _class(module: str, name: str) -> type:
    """Return a dataclass or enumeration of the listed modules. Raises NoTrace, and imports nothing else."""
    if module not in torch_private.TRACE_MODULES and module not in _OURS:
        raise NoTrace(f"{module} is not listed")
    found = getattr(import_module(module), name)
    if not isinstance(found, type) or found.__module__ != module:
        raise NoTrace(f"{module}.{name} is no class of its own")
    kind: type[Any] = found
    if not is_dataclass(kind) and not issubclass(kind, Enum):
        raise NoTrace(f"{module}.{name} is no dataclass")
    return kind


def _object(content: Form) -> object:
    module, name, state = content
    kind = _class(module, name)
    if not is_dataclass(kind):
        raise NoTrace(f"{module}.{name} is no dataclass")
    made = object.__new__(kind)
    for key, part in state.items():
        object.__setattr__(made, key, _value(part))
    return made


def _enum(content: Form) -> Enum:
    module, name, member = content
    kind = _class(module, name)
    if not issubclass(kind, Enum):
        raise NoTrace(f"{module}.{name} is no enumeration")
    return kind[member]


def _word(content: Form) -> object:
    found = getattr(torch, content)
    if not isinstance(found, _WORDS):
        raise NoTrace(f"torch.{content} is no dtype")
    return found


def _type(content: Form) -> type:
    module, name = content
    if module not in ("torch", "torch.nn.parameter", *torch_private.TENSOR_MODULES):
        raise NoTrace(f"{module} is not listed")
    found = getattr(import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, torch.Tensor)):
        raise NoTrace(f"{module}.{name} is no type of tensors")
    return found


def _tensor(content: Form) -> torch.Tensor:
    dtype, shape, text = content
    held = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8).copy()
    if not len(held):
        return torch.empty(shape if 0 in shape else 0, dtype=_value(dtype))
    return torch.from_numpy(held).view(_value(dtype)).reshape(shape)


_PARTS: dict[type, Callable[[list[Any]], object]] = {
    kind: kind for kind in (tuple, set, frozenset, torch.Size)
}
_READERS: dict[str, Callable[[Form], Any]] = {
    **{kind.__name__: lambda parts, kind=kind: kind(_value(parts)) for kind in _PARTS},
    "dict": lambda pairs: {_value(key): _value(part) for key, part in pairs},
    "OrderedDict": lambda pairs: OrderedDict((_value(key), _value(part)) for key, part in pairs),
    "defaultdict": lambda pairs: defaultdict(list, ((_value(key), _value(part)) for key, part in pairs)),
    "word": _word,
    "device": torch.device,
    "tensor": _tensor,
    "type": _type,
    "enum": _enum,
    "object": _object,
    "graph": lambda parts: torch_private.graph_of_form(*_value(parts)),
}
