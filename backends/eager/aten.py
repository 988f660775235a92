"""Execution of a torch op, as a call of its ATen operator on real tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shardc.backends.eager.kern.libraries import MEANINGS
from shardc.dialects.aten.call import DEVICE, Call, fill
from shardc.dialects.aten.schema import overload, parameters
from shardc.dialects.aten.types import TensorType
from shardc.runtime.torch_private import schema_of

WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
WIDE[torch.complex64] = torch.complex128

_CHANNELS_LAST = (torch.channels_last, torch.channels_last_3d)
MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, *_CHANNELS_LAST)
"""Memory formats by PyTorch's numbers (c10/core/MemoryFormat.h), as in arguments of the torch dialect."""
# Strides are not part of the IR, so a view may get memory with another layout than in the trace. `reshape`
# is a view if possible, and a copy otherwise.
TOLERANT = {"aten.view": "aten.reshape", "aten._unsafe_view": "aten.reshape"}


_NORMS = "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward"
DENSE = frozenset(f"aten.{name}" for name in (*_NORMS, "_pdist_forward"))
"""Calls whose operands must be contiguous: ATen does not check that (norms), or fails. PyTorch's own callers
make them so, but a slice of a saved mean is not."""


DRAWS = frozenset(["shardc.uniform"])
"""Ops whose values have as many bits as their dtype; a run in f64 draws them in that dtype, as kernels do."""


Results = Tensor | Sequence[Tensor | None]


@dataclass(frozen=True)
class AtenCall:
    """Operator with its constant arguments.

    ``args``: arguments, with types as placeholders for tensors and runtime integers, in the order of the
    call's operands. The last ones are passed by the names ``keywords``. ``results``: required types of the
    results; None for a result that is not computed. ``is_dense``: whether its tensors must be contiguous.
    """

    function: Callable[..., Results]
    args: tuple[object, ...]
    keywords: tuple[str, ...]
    results: tuple[TensorType | None, ...]
    is_dense: bool = False

    def __call__(self, operands: Sequence[object]) -> list[Tensor | None]:
        """Run it. Raises what the operator raises, and ValueError if a result has another type."""
        if self.is_dense:
            operands = [x.contiguous() if isinstance(x, Tensor) else x for x in operands]
        args, count = fill(self.args, list(operands)), len(self.args) - len(self.keywords)
        made = self.function(*args[:count], **dict(zip(self.keywords, args[count:], strict=True)))
        results: list[Tensor | None] = [made] if isinstance(made, Tensor) else list(made)
        check_types(results, self.results)
        return results


def prepare(call: Call, widen: bool) -> AtenCall:
    """Return the operator of ``call``. With ``widen``, floating dtype arguments and results become f64.

    Raises ValueError for an operator that writes to its arguments, since values of a step never change.
    """
    target = call.spec.target
    function = overload(TOLERANT.get(target, target))
    if schema_of(function).is_mutable:
        raise ValueError("it writes to its operands, but the values of a step are immutable")
    schema = parameters(target)
    run: Callable[..., Results] = MEANINGS[target] if widen and target in MEANINGS else function
    given = zip(call.spec.args, schema, strict=True)
    args = tuple(_argument(arg, kind, widen and target not in DRAWS) for arg, (_, kind, _) in given)
    if widen and target in DRAWS:
        run = _widened(run)
    results = tuple(type_ and executed_type(type_, widen) for type_ in call.spec.results)
    keywords = tuple(name for name, _, keyword in schema if keyword)
    return AtenCall(run, args, keywords, results, target in DENSE)


def _widened(run: Callable[..., Results]) -> Callable[..., Results]:
    """Return ``run``, whose one result is converted to f64."""

    def widened(*args: object, **keywords: object) -> Tensor:
        made = run(*args, **keywords)
        assert isinstance(made, Tensor)
        return made.double()

    return widened


def executed_type(type_: TensorType, widen: bool) -> TensorType:
    """Return the type that a value has in a run: its own, or with ``widen`` its f64 form."""
    return TensorType(type_.shape, WIDE.get(type_.dtype, type_.dtype)) if widen else type_


def check_types(tensors: Sequence[Tensor | None], types: Sequence[TensorType | None]) -> None:
    """Raise ValueError if the tensors do not have these types. None allows any tensor."""
    if len(tensors) != len(types):
        raise ValueError(f"it returned {len(tensors)} results, but the program has {len(types)}")
    for tensor, type_ in zip(tensors, types, strict=True):
        if type_ is None:
            continue
        if tensor is None:
            raise ValueError(f"it returned nothing, but the program has a {type_}")
        if tuple(tensor.shape) != type_.shape or tensor.dtype != type_.dtype:
            found = TensorType(tuple(tensor.shape), tensor.dtype)
            raise ValueError(f"the tensor is a {found}, but the program has a {type_}")


def _argument(arg: object, kind: str, widen: bool) -> object:
    if arg is None:
        return None
    if "Layout" in kind:
        return torch.strided
    if "MemoryFormat" in kind and isinstance(arg, int):
        return MEMORY_FORMATS[arg]
    if arg is DEVICE:
        return torch.device("cpu")
    if widen and isinstance(arg, torch.dtype):
        return WIDE.get(arg, arg)
    return arg
