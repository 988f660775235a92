"""Replaces torch functions whose meaning must not depend on device or mesh while a model is traced.

Attention becomes one op of shardc (random ops are replaced below autograd, in ``random.py``). Python
functions of ``torch.nn.functional`` and ``torch.autograd`` run with the mode still active, so that their
calls are intercepted, too (``multi_head_attention_forward`` calls both).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from shardc.frontend.nodes import listed
from shardc.frontend.operators.attention import scaled_dot_product_attention
from shardc.frontend.operators.circular_pad import circular_pad
from shardc.frontend.operators.multi_head_attention import multi_head_attention
from shardc.frontend.operators.random import refuse_generators
from shardc.frontend.step.constant_value import ask
from shardc.frontend.step.overrides.linear_algebra import UNCHECKED
from shardc.runtime import torch_private

# Functions by which Python reads a tensor's value.
_READS = {
    *(torch.Tensor.item, torch.Tensor.tolist),
    *(torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__),
}

# Functions in these files call others that must be intercepted; gradients rerun checkpointed forwards.
_REENTERED = {F.__file__, torch.autograd.__file__}

_POOLS = {torch.adaptive_avg_pool1d: (-1,), F.adaptive_avg_pool2d: (-2, -1)}


class Interception(TorchFunctionMode):
    """Mode that is active during forward and backward of a trace."""

    def __torch_function__(
        self, func: Callable[..., object], types_: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        kwargs = kwargs or {}
        # Checked here and below autograd, because functionalization would fail first.
        refuse_generators(func, (*args, *kwargs.values()))
        if func is F.scaled_dot_product_attention:
            return scaled_dot_product_attention(*args, **kwargs)
        if func in _LAYERS:
            with self:
                made = _LAYERS[func](*args, **kwargs)
            if made is not None:
                return made
        if func in _POOLS and all(n == 1 for n in listed(args[1])):
            # For channels-last inputs torch's own version uses as_strided, which needs memory.
            return args[0].mean(_POOLS[func], keepdim=True)
        if func is torch.dropout:
            return _dropout(*args, **kwargs)
        if func in _READS:
            answer = ask(args[0], func)
            return func(*args, **kwargs) if answer is None else answer
        # Compared by file: functions that dispatch on a flag (max_pool2d) only claim to be from there.
        if isinstance(func, types.FunctionType) and func.__code__.co_filename in _REENTERED:
            with self:
                return _without_override_check(func)(*args, **kwargs)
        return func(*args, **kwargs)


@functools.cache
def _without_override_check(func: types.FunctionType) -> types.FunctionType:
    """Return a copy of the function that does not dispatch to the active mode again."""
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = {**func.__globals__, **dict.fromkeys(checks, lambda *args: False)}
    copy = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Drop out without torch's check for emptiness if the number of elements is symbolic."""
    if p and train and isinstance(input.numel(), torch.SymInt):
        return torch.native_dropout(input, p, train)[0]
    return torch.dropout(input, p, train)


def _embedding_bag(
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> torch.Tensor | None:
    """Compute an embedding and a sum per bag: [bags, d] of [bags, n], or of [n] and ``offsets``.

    None, which leaves the call to torch, for ``max_norm``, which writes to the weight, and for the maximum of
    bags given by offsets.
    """
    if max_norm is not None or (offsets is not None and mode == "max"):
        return None
    rows = F.embedding(input, weight, padding_idx, None, norm_type, scale_grad_by_freq, False)
    kept = torch.ones_like(input, dtype=torch.bool)
    if padding_idx is not None:
        kept = input != padding_idx % len(weight)
    if mode == "max":
        largest = rows.masked_fill(~kept.unsqueeze(-1), -torch.inf).amax(1)
        return torch.where(kept.any(1, keepdim=True), largest, 0.0)
    shares = kept.to(rows.dtype) if per_sample_weights is None else kept * per_sample_weights
    rows = rows * shares.unsqueeze(-1)
    if offsets is None:
        total, count = rows.sum(1), kept.sum(1)
    else:
        bags = offsets[:-1] if include_last_offset else offsets
        place = torch.arange(len(input), device=input.device).unsqueeze(1)
        bag = (place >= bags).sum(1) - 1
        total = rows.new_zeros(len(bags), rows.shape[1]).index_add(0, bag, rows)
        count = torch.zeros_like(bags).index_add(0, bag, kept.to(bags.dtype))
    return total / count.clamp(min=1).unsqueeze(1) if mode == "mean" else total


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return ``v`` normalized to length ``g`` along all dims but ``dim``; along all dims for -1."""
    dims = [d for d in range(v.dim()) if d != dim]
    return v * (g / v.square().sum(dims, keepdim=dim != -1).sqrt())


_LAYERS: dict[Callable[..., object], Callable[..., object]] = {
    F.embedding_bag: _embedding_bag,
    F.pad: circular_pad,
    F.multi_head_attention_forward: multi_head_attention,
    torch_private.weight_norm: _weight_norm,
    **UNCHECKED,
}
