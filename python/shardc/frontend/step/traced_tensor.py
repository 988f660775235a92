"""Maps tensors of a trace to nodes of its graph, and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch.fx import Node, Proxy
from torch.fx.experimental.proxy_tensor import (
    PythonKeyTracer,
    get_proxy_mode,
    get_proxy_slot,
    track_tensor,
)

from shardc.runtime.torch_private import FakeTensor, FunctionalTensor, disable_current_modes


def node_of(tensor: torch.Tensor, tracer: PythonKeyTracer) -> Node | None:
    """Return the node of a traced tensor; None for a tensor that the trace treats as a constant."""
    if not isinstance(tensor, FunctionalTensor):
        return None
    slot = get_proxy_slot(inner_of(tensor), tracer, None)
    return None if slot is None or slot.constant is not None else slot.proxy.node


def inner_of(tensor: torch.Tensor) -> FakeTensor:
    """Return the fake tensor inside a traced one, with everything that was written to it."""
    assert isinstance(tensor, FunctionalTensor)
    inner = tensor.from_functional()
    assert isinstance(inner, FakeTensor)
    return inner


def layout_of(tensor: torch.Tensor) -> Hashable:
    """Return what determines which ops a function calls on a traced tensor."""
    inner = inner_of(tensor)
    marks = (tensor.requires_grad, inner.is_conj(), inner.is_neg())
    return inner.dtype, tuple(inner.shape), inner.stride(), inner.storage_offset(), marks


def layout_at(node: Node) -> Hashable:
    """Return the same for a tensor that stands for a node."""
    value = node.meta["val"]
    return value.dtype, tuple(value.shape), value.stride(), 0, (False, False, False)


def stand_ins(nodes: Sequence[Node], tracer: PythonKeyTracer) -> list[torch.Tensor]:
    """Return new tensors of the trace that stand for nodes, with their layouts."""
    if not nodes:
        return []
    values = [node.meta["val"] for node in nodes]
    # Without modes, which would trace the creation of these tensors.
    with disable_current_modes(), values[0].fake_mode:
        made = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in values]
    for tensor, node in zip(made, nodes, strict=True):
        track_tensor(tensor, Proxy(node, tracer), constant=None, tracer=tracer)
    return [FunctionalTensor.to_functional(tensor) for tensor in made]


def current_stand_ins(nodes: Sequence[Node]) -> list[torch.Tensor]:
    """Return such tensors in the running trace."""
    mode = get_proxy_mode()
    assert mode is not None
    return stand_ins(nodes, mode.tracer)
