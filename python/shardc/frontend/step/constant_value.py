"""Values of traced tensors that depend on no argument of the step, such as positions from ``arange``.

Code that reads such values (``if mask.all()``) can be traced, because the answer is the same in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from shardc.frontend.nodes import history
from shardc.runtime.torch_private import FunctionalTensor, disable_current_modes

# A tensor behind more traced ops than this counts as unknown, since constants have short histories.
MAX_OPS = 64

Answer = TypeVar("Answer")
_answers: ContextVar[int] = ContextVar("shardc_answers", default=0)


def ask(tensor: torch.Tensor, question: Callable[[torch.Tensor], Answer]) -> Answer | None:
    """Ask ``question`` of a traced tensor's value; None if that depends on an argument or a random draw."""
    mode = get_proxy_mode()
    if mode is None or not isinstance(tensor, FunctionalTensor):
        return None
    slot = get_proxy_slot(tensor.from_functional(), mode.tracer, None)
    if slot is None or (nodes := _ops_behind(slot.proxy.node)) is None:
        return None
    _answers.set(_answers.get() + 1)
    with disable_current_modes(), torch.no_grad():
        return question(_evaluate(nodes, mode.tracer.root))


def answers() -> int:
    """Return the number of questions answered so far; code that asks depends on more than layouts."""
    return _answers.get()


def _ops_behind(node: Node) -> list[Node] | None:
    """Return the ops that compute ``node``, in order; None if an argument of the step is among them."""
    found: list[Node] = []
    for current in history(node):
        if current.op == "placeholder" or len(found) > MAX_OPS:
            return None
        found.append(current)
    return sorted(found)


def _evaluate(nodes: list[Node], root: torch.nn.Module) -> torch.Tensor:
    values: dict[Node, Any] = {}
    for node in nodes:
        if node.op == "get_attr":
            values[node] = getattr(root, str(node.target))
        else:
            args: tuple[Any, Any] = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            assert callable(node.target)
            values[node] = node.target(*args[0], **args[1])
    return values[nodes[-1]]
