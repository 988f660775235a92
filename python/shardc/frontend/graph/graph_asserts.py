"""Assertions of values in a graph of AOTAutograd, such as that every class of ``F.one_hot`` is one of those
there are.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule

_ASSERTS = (torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg)


def lift_asserts(module: GraphModule) -> tuple[str, ...]:
    """Turns each into one more result of the graph, a truth value: what is to be said where it is false, in
    their order.

    A program of calls and kernels has no effects; who runs it looks at these results.
    """
    messages = []
    output = module.graph.output_node()
    for node in [n for n in module.graph.nodes if n.op == "call_function" and n.target in _ASSERTS]:
        truth, *message = node.args
        output.args = ((*output.args[0], truth),)  # type: ignore[misc]
        messages.append(str(message[0]) if message else "")
        module.graph.erase_node(node)
    return tuple(messages)
