"""Decomposes ``aten._foreach_*`` into one op per tensor, as ATen's own CPU kernels do.

The IR has no lists of tensors. Fusion into kernels does not depend on how ops were grouped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from shardc.frontend.operators import Table
from shardc.runtime.torch_private import OpOverload, schema_of

aten = torch.ops.aten
_PREFIX = "_foreach_"
_OTHERS: dict[str, Callable[..., object]] = {
    "addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
    "copy": aten.copy,
    "maximum": torch.clamp_min,  # torch.maximum takes no numbers
    "minimum": torch.clamp_max,
    "norm": torch.linalg.vector_norm,
    "zero": torch.zeros_like,
}


@cache
def foreach_table() -> Table:
    """Return decompositions of functional ``_foreach`` overloads with a single-tensor op in torch."""
    names = [name for name in dir(torch) if name.startswith(_PREFIX) and not name.endswith("_")]
    packets = [getattr(aten, name) for name in [*names, "_foreach_copy", "_foreach_zero"]]
    overloads = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    functional = {op: _for_one_tensor(op) for op in overloads if _gives_one_each(op)}
    return {op: _decomposition(op, one) for op, one in functional.items() if one}


def _for_one_tensor(op: OpOverload) -> Callable[..., object] | None:
    name = schema_of(op).name.partition("::")[2].removeprefix(_PREFIX)
    return _OTHERS.get(name) or getattr(torch, name, None)


def _gives_one_each(op: OpOverload) -> bool:
    """Return whether an op gives one result per tensor, with a scalar each (not ``addcmul.Tensor``)."""
    declared = schema_of(op)
    scalars = declared.overload_name == "Tensor" and any(a.name == "scalars" for a in declared.arguments)
    returned = [str(r.type) for r in declared.returns]
    return not scalars and not declared.is_mutable and returned == ["List[Tensor]"]


def _decomposition(op: OpOverload, one: Callable[..., object]) -> Callable[..., object]:
    listed = {a.name for a in schema_of(op).arguments if str(a.type).startswith("List[")}
    order = [a.name for a in schema_of(op).arguments]

    def decomposed(*args: Any, **kwargs: Any) -> list[object]:
        def of(number: int, name: str, arg: Any) -> object:
            return arg[number] if name in listed else arg

        given = list(zip(order, args, strict=False))
        count = next(len(arg) for name, arg in given if name in listed)
        return [
            one(*(of(n, *pair) for pair in given), **{name: of(n, name, arg) for name, arg in kwargs.items()})
            for n in range(count)
        ]

    return decomposed


def fma_table() -> Table:
    """Decompose ``prims.fma``, which Dynamo makes from ``addcmul_``, because eager mode rounds twice."""
    fma = getattr(torch.ops.prims, "fma", None)
    return {} if fma is None else {fma.default: lambda a, b, c: c + a * b}
