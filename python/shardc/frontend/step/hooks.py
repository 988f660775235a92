"""Gradient hooks of the user's parameters, run on the tensors that represent them in a trace.

Hooks of modules and of the optimizer need no handling: PyTorch calls them during the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from shardc.diagnostics.frontend import HookUnsupported
from shardc.runtime.torch_private import gradient_hooks


def carry_hooks(params: Mapping[str, torch.Tensor], leaves: Mapping[str, torch.Tensor]) -> None:
    """Register each hook of ``params`` on the leaf of the same name, in the order of registration.

    Raises HookUnsupported for a hook of several tensors at once, which refers to the parameters themselves.
    """
    for name, leaf in leaves.items():
        if leaf.requires_grad:
            before, after = gradient_hooks(params[name])
            for hook in before:
                if hook.__module__ == torch.autograd.graph.__name__:
                    reason = "register_multi_grad_hook waits for gradients of the parameters themselves"
                    raise HookUnsupported(parameter=name, reason=reason, where=f"model, {name}")
                leaf.register_hook(hook)
            for hook in after:
                leaf.register_post_accumulate_grad_hook(hook)


def check_hooks(params: Mapping[str, torch.Tensor], leaves: Mapping[str, torch.Tensor]) -> None:
    """Raise HookUnsupported if the forward registered a hook on a parameter, as eager would each step."""
    for name, leaf in leaves.items():
        known, found = gradient_hooks(params[name]), gradient_hooks(leaf)
        for old, new in zip(known, found, strict=True):
            if leaf.requires_grad and len(new) > len(old):
                reason = "the forward registers it, so eager PyTorch would have one more hook after each step"
                raise HookUnsupported(parameter=name, reason=reason, where=line_of_code(new[-1]))


def line_of_code(function: Callable[..., object]) -> str | None:
    """Return ``file:line`` of a function's definition; None if it is not written in Python."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
