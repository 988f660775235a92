"""ATen operators by their names in the torch dialect: ``aten.add.Tensor``, ``shardc.attention``."""

from functools import cache
from importlib import import_module
from typing import Any

import torch

from shardc.runtime.torch_private import schema_of


class UnknownOperator(KeyError):
    """No operator of that name is registered with PyTorch in this process."""


_OPERATORS = ["random", "sampling", "attention", "folded_attention", "ring_attention"]
_OPERATORS += [
    "linear_cross_entropy",
    "experts",
    "dispatch",
    "copies",
    "causal_convolution",
    "convolution",
    "circular_pad",
    "flat_index",
    "padded_convolution",
    "padded_max_pool",
]


@cache
def overload(target: str) -> Any:
    """The ``torch._ops.OpOverload`` called ``target`` (``namespace.name`` or ``namespace.name.overload``)."""
    namespace, name, *rest = target.split(".")
    if namespace == "shardc":
        for module in _OPERATORS:
            import_module(f"shardc.runtime.operators.{module}")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    found = getattr(packet, rest[0] if rest else "default", None)
    if found is None:
        raise UnknownOperator(target)
    return found


COUNTED = frozenset(f"shardc.{name}" for name in ("uniform", "poisson", "binomial", "standard_gamma"))
"""Random draws of which each has a number of its own, ``op``."""


@cache
def may_draw(target: str) -> bool:
    """Return whether the operator can draw random numbers, for example if ``dropout_p`` is above 0."""
    try:
        return target in COUNTED or torch.Tag.nondeterministic_seeded in overload(target).tags
    except UnknownOperator:
        return False


def target_of(op: object) -> str:
    """Return the name of an overload: the inverse of :func:`overload`."""
    return str(op).removesuffix(".default")


@cache
def parameters(target: str) -> tuple[tuple[str, str, bool], ...]:
    """Return (name, type, keyword-only) of each parameter in the operator's schema."""
    return tuple((a.name, str(a.real_type), a.kwarg_only) for a in schema_of(overload(target)).arguments)


@cache
def position(target: str, name: str) -> int:
    """Return the index of the parameter ``name`` in the operator's schema."""
    return [n for n, _, _ in parameters(target)].index(name)


# PyTorch's ScalarType numbers, as they stand in ``torch.constant.int`` for a dtype argument
# (c10/core/ScalarType.h).
_SCALAR_TYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
}
_SCALAR_NUMBERS = {dtype: number for number, dtype in _SCALAR_TYPES.items()}


def dtype_of(number: int) -> torch.dtype:
    return _SCALAR_TYPES[number]


def number_of(dtype: torch.dtype) -> int:
    return _SCALAR_NUMBERS[dtype]
