"""The ``_foreach_`` forms: the same pointwise op for each place of its lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.graph import Builder, NotLowered, Value
from shardc.passes.fuse.table import lower, lowers

_SINGLE = {
    "abs": "abs", "add.List": "add.Tensor", "add.Scalar": "add.Scalar", "add.Tensor": "add.Tensor",
    "addcdiv.Scalar": "addcdiv", "addcmul.Scalar": "addcmul", "div.List": "div.Tensor", "div.Scalar": "div.Scalar",
    "div.Tensor": "div.Tensor", "exp": "exp", "lerp.Scalar": "lerp.Scalar", "log": "log", "maximum.List": "maximum",
    "mul.List": "mul.Tensor", "mul.Scalar": "mul.Scalar", "mul.Tensor": "mul.Tensor", "neg": "neg",
    "pow.Scalar": "pow.Tensor_Scalar", "reciprocal": "reciprocal", "sqrt": "sqrt", "sub.List": "sub.Tensor",
    "sub.Scalar": "sub.Scalar",
}  # fmt: skip


@lowers(*(f"aten._foreach_{name}" for name in _SINGLE))
def foreach(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """A node for each place; a lone tensor or number goes with every place."""
    target = f"aten.{_SINGLE[call.target.removeprefix('aten._foreach_')]}"
    rest = iter(values)
    arguments = [_taken(arg, rest) for arg in call.args]
    made: list[Value | None] = []
    for place, type_ in enumerate(call.results):
        row = [pair[place] if isinstance(pair, list) else pair for pair in arguments]
        args = tuple(v.type if isinstance(v, Value) else v for v in row)
        tensors = [v for v in row if isinstance(v, Value)]
        made += lower(b, OpCall(target, args, (type_,)), tensors)
    return made


def _taken(arg: Any, rest: Any) -> Any:
    if isinstance(arg, TensorType):
        return next(rest)
    if isinstance(arg, tuple):
        if not all(isinstance(a, TensorType) for a in arg):
            raise NotLowered("takes a list of numbers")
        return [next(rest) for _ in arg]
    return arg
