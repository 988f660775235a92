"""Traces attention of Dynamo's graphs on GPUs as ``shardc::attention`` with its backward.

A mode replaces ``F.scaled_dot_product_attention`` while AOTAutograd traces, whichever implementation PyTorch
would dispatch to. Attention without a shardc kernel stays PyTorch's, which supports dropout and gradients of
learned masks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.traceback import get_current_meta
from torch.overrides import TorchFunctionMode

import shardc.runtime.operators.attention  # noqa: F401  (registers shardc::attention)
from shardc.frontend.importing.recorder import line_of
from shardc.frontend.nodes import stride_order
from shardc.frontend.operators.attention import scaled_dot_product_attention
from shardc.frontend.operators.attention_layout import laid_out
from shardc.runtime.torch_private import FakeTensor, FunctionalTensor, functorch_level

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that kernels support."""
_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor, FunctionalTensor)
"""Types of tensors without behaviour of their own."""


class GraphAttention(TorchFunctionMode):
    """Mode during a trace that takes attention on devices for which ``has_kernels`` is true.

    ``note_left`` receives the user's line and the reason for each such attention that stays PyTorch's.
    """

    def __init__(
        self, has_kernels: Callable[[torch.device], bool], note_left: Callable[[str | None, str], None]
    ) -> None:
        super().__init__()
        self._has_kernels, self._note_left = has_kernels, note_left

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        kwargs = kwargs or {}
        is_attention = func is F.scaled_dot_product_attention
        if not is_attention or not self._has_kernels((args[0] if args else kwargs["query"]).device):
            return func(*args, **kwargs)
        meta = get_current_meta()
        if why := _why_left(*args, **kwargs):
            self._note_left(line_of(meta), why)
            return func(*args, **kwargs)
        attend = partial(_Attention.apply, _order(meta.get("example_value")))
        return scaled_dot_product_attention(*args, **kwargs, attend=attend)


def _why_left(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str:
    """Say why a call stays PyTorch's; empty if it is taken."""
    tensors = [t for t in (query, key, value, attn_mask) if t is not None]
    others = [type(t).__name__ for t in tensors if type(t) not in _PLAIN]
    if dropout_p > 0:
        return "its probabilities are dropped out"
    if attn_mask is not None and attn_mask.requires_grad and torch.is_grad_enabled():
        return "its mask needs a gradient"
    if query.dtype not in FLOATS:
        return f"there are no kernels for {query.dtype}"
    if others:
        return f"it is of {others[0]}s"
    if functorch_level() is not None:
        return "it is inside of a transform of torch.func"
    if any(isinstance(t.shape[-1], torch.SymInt) for t in (query, key, value)):
        return "the size of its heads is known at run time only"
    cuda = torch.backends.cuda
    if cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() or cuda.cudnn_sdp_enabled():
        return ""
    return "plain ops alone are allowed (sdpa_kernel)"


def _order(expected: object) -> tuple[int, ...]:
    """Return the dims of eager PyTorch's result in memory order, the most major first."""
    if isinstance(expected, Tensor) and expected.dim() == 4:
        return stride_order(expected)
    return 0, 1, 2, 3


class _Attention(torch.autograd.Function):
    """``shardc::attention`` with eager's result layout; the backward saves that result."""

    @staticmethod
    def forward(
        ctx: Any,
        order: tuple[int, ...],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *settings: float,
    ) -> Tensor:
        """Compute the attention; ``settings`` are causal and the scale."""
        out, lse = torch.ops.shardc.attention(q, k, v, mask, *settings)
        out = laid_out(out, order)
        ctx.settings = settings
        ctx.save_for_backward(q, k, v, mask, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad_out,) = grad_outputs
        grads = torch.ops.shardc.attention_backward(grad_out, *ctx.saved_tensors, *ctx.settings, 0)
        return None, *grads, None, None, None
