"""``aten._foreach_*`` as one op for each tensor of its lists: what ATen's own CPU kernels for them do.

The IR has no lists of tensors, and kernels are made of what the ops say, not of how they came in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

aten = torch.ops.aten
_PREFIX = "_foreach_"
_OTHERS: dict[str, Callable[..., Any]] = {
    "addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
    "copy": aten.copy,
    "maximum": torch.clamp_min,  # torch.maximum takes no numbers
    "minimum": torch.clamp_max,
    "norm": torch.linalg.vector_norm,
    "zero": torch.zeros_like,
}


@cache
def foreach_table() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """A decomposition of each functional ``_foreach`` overload whose op for one tensor torch has."""
    names = {name.removeprefix("aten::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    packets = [
        getattr(aten, name) for name in sorted(names) if name.startswith(_PREFIX) and not name.endswith("_")
    ]
    overloads = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    return {
        op: _decomposition(op, one)
        for op in overloads
        if _gives_one_each(op) and (one := _for_one_tensor(op))
    }


def _for_one_tensor(op: torch._ops.OpOverload) -> Callable[..., Any] | None:
    name = op._schema.name.partition("::")[2].removeprefix(_PREFIX)
    return _OTHERS.get(name) or getattr(torch, name, None)


def _gives_one_each(op: torch._ops.OpOverload) -> bool:
    """``addcmul.Tensor`` and its like do not count: they take the scalars of all tensors as one tensor."""
    scalars = op._overloadname == "Tensor" and any(a.name == "scalars" for a in op._schema.arguments)
    return (
        not scalars
        and not op._schema.is_mutable
        and [str(r.type) for r in op._schema.returns] == ["List[Tensor]"]
    )


def _decomposition(op: torch._ops.OpOverload, one: Callable[..., Any]) -> Callable[..., Any]:
    listed = {a.name for a in op._schema.arguments if str(a.type).startswith("List[")}
    order = [a.name for a in op._schema.arguments]

    def decomposed(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        given = list(zip(order, args, strict=False))
        count = next(len(arg) for name, arg in given if name in listed)

        def of(number: int, name: str, arg: Any) -> Any:
            return arg[number] if name in listed else arg

        return [
            one(*(of(n, *pair) for pair in given), **{name: of(n, name, arg) for name, arg in kwargs.items()})
            for n in range(count)
        ]

    return decomposed


def fma_table() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Dynamo writes an optimizer's ``addcmul_`` with Inductor's ``prims.fma``,
    which rounds once where eager rounds twice.
    """
    fma = getattr(torch.ops.prims, "fma", None)
    return {} if fma is None else {fma.default: lambda a, b, c: c + a * b}
