"""Stand-ins in the user's model for tensors whose values this process lacks. Reading one is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from shardc.diagnostics.api import ValuesElsewhere
from shardc.runtime.torch_private import PARAMETER_MARKS

_KNOWN = frozenset(
    (
        *("shape", "dtype", "device", "requires_grad", "grad", "grad_fn", "is_leaf", "is_meta", "layout"),
        *("ndim", "names", "is_sparse", "is_quantized", "is_nested", "is_cuda", "is_cpu"),
        *PARAMETER_MARKS,
    )
)
"""Attributes that a tensor without values can answer."""
_CALLS = frozenset(
    (
        *("size", "dim", "numel", "nelement", "element_size", "stride", "is_floating_point", "is_complex"),
        *("requires_grad_", "__len__", "get_device", "is_contiguous", "storage_offset"),
    )
)
"""Methods that it can answer."""


class Elsewhere(Tensor):
    """Tensor on the meta device that knows its shape and dtype; any other use raises ValuesElsewhere."""

    called: str
    reason: str
    now: Tensor | None
    """Tensor that replaced this one in the model, if any."""
    state: object
    """State that holds the values. Keeping it here keeps the values alive as long as the stand-in."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if func.__name__ in _CALLS or (func.__name__ in ("__get__", "__set__") and attribute in _KNOWN):
            return super().__torch_function__(func, tuple(types), tuple(args), dict(kwargs or {}))
        given = _flat((*args, *(kwargs or {}).values()))
        found = next((x for x in given if isinstance(x, Elsewhere)), None)
        raise ValuesElsewhere(
            name=getattr(found, "called", "a parameter"), reason=getattr(found, "reason", "it is not here")
        )

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Elsewhere({self.called!r}, {list(self.shape)}, {self.dtype}: {self.reason})"

    def __reduce_ex__(self, protocol: object) -> str:
        raise ValuesElsewhere(name=self.called, reason=self.reason)

    def __deepcopy__(self, memo: object) -> Elsewhere:
        raise ValuesElsewhere(name=self.called, reason=self.reason)


class ElsewhereParameter(Elsewhere, nn.Parameter):
    """Stand-in for a parameter."""

    __repr__ = Elsewhere.__repr__
    __reduce_ex__ = Elsewhere.__reduce_ex__
    __deepcopy__ = Elsewhere.__deepcopy__


def _flat(args: Sequence[object]) -> Iterator[object]:
    for arg in args:
        yield from arg if isinstance(arg, list | tuple) else (arg,)


def elsewhere(
    like: Tensor, name: str, reason: str, *, now: Tensor | None = None, state: object = None
) -> Elsewhere:
    """Return a stand-in for ``like``. ``name``: its name in the step. ``reason``: why it has no values."""
    kind = ElsewhereParameter if isinstance(like, nn.Parameter) else Elsewhere
    made = torch.empty(like.shape, dtype=like.dtype, device="meta").as_subclass(kind)
    made.requires_grad_(like.requires_grad)
    made.called, made.reason, made.now, made.state = name, reason, now, state
    return made
