"""ATen calls as Python text: ``mm_3 = mm(view_2, t_1)``.

Each operator is bound once at the program's head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from shardc.backends.eager.aten import DENSE, MEMORY_FORMATS, TOLERANT
from shardc.backends.torch.names import Names
from shardc.dialects.aten.call import Device, IntValue, OpCall
from shardc.dialects.aten.python_numbers import is_python_number, text_of
from shardc.dialects.aten.schema import overload
from shardc.dialects.aten.types import TensorType
from shardc.runtime.kernels.pool import POOLED_BYTES
from shardc.runtime.torch_private import schema_of

PRODUCTS = frozenset(("aten.mm", "aten.addmm", "aten.bmm"))
WITH_OUT = PRODUCTS | {"aten.cumsum", "aten.cumprod"}
"""Calls whose result is contiguous and may be written to given memory (``aten.mm.out``)."""


Parameter = tuple[str, str, bool, object]
"""Name, kind, whether it is by keyword only, and default of an operator's parameter."""


class Functions:
    """Operators of a program, and the names that they are bound to.

    ``pooled``: allocate large results of matmuls and scans in the runtime's pool with ``empty``, which the
    program's globals must have (:func:`shardc.runtime.kernels.pool.contiguous`).
    """

    def __init__(self, names: Names, pooled: bool = False) -> None:
        self._names, self._pooled = names, pooled
        self._bound: dict[str, str] = {}

    def name(self, target: str) -> str:
        """Return the name of ``target`` in the program."""
        target = TOLERANT.get(target, target)
        found = self._bound.get(target)
        if found is None:
            _, base, *variant = target.split(".")
            choices = [base, f"{base}_{variant[0].lower()}"] if variant else [base]
            if variant == ["Scalar"]:  # the plain name is reserved for the Tensor overload
                choices = choices[1:]
            free = [name for name in choices if self._names.is_free(name)]
            found = self._names.exact(free[0] if free else f"aten_{base}")
            self._bound[target] = found
        return found

    def head(self) -> list[str]:
        """Return the lines that bind the operators, sorted by name."""
        bound = sorted((name, target) for target, name in self._bound.items())
        return [f"{n} = torch.ops.{t if t.count('.') == 2 else f'{t}.default'}" for n, t in bound]

    def call(self, spec: OpCall, operands: list[str]) -> str:
        """Return the text of a call. ``operands``: names of its tensors and runtime integers, in order."""
        if spec.target in TOLERANT:
            return f"{self.name(spec.target)}({operands[0]}, {text(spec.args[1], iter(operands[1:]))})"
        if spec.target in DENSE:
            operands = [f"{operand}.contiguous()" for operand in operands]
        rest = iter(operands)
        if is_python_number(spec.target):
            return text_of(spec.target, [text(arg, rest) for arg in spec.args])
        makes = not spec.tensors  # a factory op needs an explicit device
        plan = _plan(spec.target)
        texts: list[str | None] = []
        for arg, (name, kind, _, default) in zip(spec.args, plan, strict=True):
            if kind == "Device" and makes:
                arg = Device()
            elif kind == "MemoryFormat" and arg is not None:
                arg = MEMORY_FORMATS[arg]
            elif kind == "Layout" or name == "pin_memory" or _is_default(arg, default):
                texts.append(None)
                continue
            texts.append(text(arg, rest))
        arguments = _join(texts, plan)
        if self._pooled and spec.target in WITH_OUT and (out := _pooled_result(spec, operands)) is not None:
            return f"{self.name(f'{spec.target}.out')}({arguments}, out={out})"
        return f"{self.name(spec.target)}({arguments})"


def _pooled_result(spec: OpCall, operands: list[str]) -> str | None:
    """Return the allocation of a result, from the pool if large; None for a result known to be small."""
    (result,) = spec.results
    if result is None or (None not in result.shape and result.size_bytes < POOLED_BYTES):
        return None
    left, right = operands[-2:] if spec.target in PRODUCTS else operands[:1] * 2
    rank = len(result.shape)
    read = [f"{right if d == rank - 1 else left}.shape[{d}]" for d in range(rank)]
    sizes = [str(n) if n is not None else text for n, text in zip(result.shape, read, strict=True)]
    shape = f"{sizes[0]}," if rank == 1 else ", ".join(sizes)
    return f"empty(({shape}), {result.dtype})"


def _join(texts: list[str | None], plan: tuple[Parameter, ...]) -> str:
    """Join arguments, by position as far as possible, then by name. None stands for a default."""
    parts, by_name = [], False
    for argument, (name, _, keyword_only, _) in zip(texts, plan, strict=True):
        if argument is None:
            by_name = True
        else:
            parts.append(f"{name}={argument}" if by_name or keyword_only else argument)
    return ", ".join(parts)


def text(arg: object, operands: Iterator[str]) -> str:
    """Return one argument as Python. Tensors and runtime integers take the next of ``operands``."""
    if isinstance(arg, TensorType | IntValue):
        return next(operands)
    if isinstance(arg, tuple | list):
        return f"[{', '.join([text(a, operands) for a in arg])}]"
    if isinstance(arg, Device):
        return "rank.device"
    if isinstance(arg, float) and math.isinf(arg):
        return "inf" if arg > 0 else "-inf"
    return repr(arg)


_REQUIRED = object()
"""Placeholder for the default of a required parameter."""


@cache
def _plan(target: str) -> tuple[Parameter, ...]:
    plan = []
    for a in schema_of(overload(target)).arguments:
        kind = str(a.real_type).removeprefix("Optional[").removesuffix("]")
        default = a.default_value if a.has_default_value() else _REQUIRED
        default = tuple(default) if isinstance(default, list) else default
        plan.append((a.name, kind, a.kwarg_only, default))
    return tuple(plan)


def _is_default(arg: object, default: object) -> bool:
    """Return True for a constant that equals the default in value and type: ``1`` and ``1.0`` differ."""
    is_constant = not isinstance(arg, TensorType | IntValue)
    return is_constant and type(arg) is type(default) and arg == default
