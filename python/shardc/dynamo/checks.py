"""Calls of a graph that only raise errors, such as the assertions of ``F.one_hot`` and ``torch.linalg``.

A program of calls and kernels has no effects. So the tensors that such calls look at become further results
of the graph, and the calls run after the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from shardc.frontend.nodes import calls, node_at, outputs
from shardc.runtime.torch_private import HigherOrderOperator, OpOverload, pytree, schema_of


@dataclass(frozen=True)
class Check:
    """Call of an ATen operator without results: ``op`` with a tensor, ``args`` and ``kwargs``.

    ``op``: the name with its overload, such as ``_assert_async.msg``.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self, tensor: torch.Tensor) -> None:
        """Run the check. Raises the operator's error."""
        attrgetter(self.op)(torch.ops.aten)(tensor, *self.args, **self.kwargs)


def lift_checks(module: GraphModule) -> tuple[Check, ...]:
    """Append the tensors of a graph's checks to its results, and remove the checks.

    AOTAutograd passes some of them to ``with_effects``, which takes and returns a token of their order.
    """
    checks = []
    output = module.graph.output_node()
    for node in calls(module.graph):
        found = _check_of(node)
        if found is None:
            continue
        tensor, check = found
        output.args = ((*outputs(module.graph), tensor),)
        checks.append(check)
        for token in list(node.users):
            token.replace_all_uses_with(node_at(node))
            module.graph.erase_node(token)
        module.graph.erase_node(node)
    return tuple(checks)


def _check_of(node: Node) -> tuple[Node, Check] | None:
    """Return the tensor and the call, if ``node`` is a check."""
    op, args = node.target, node.args
    if isinstance(op, HigherOrderOperator) and op.name() == "with_effects":
        _, op, *args = args
    if not isinstance(op, OpOverload) or op.namespace != "aten" or schema_of(op).returns:
        return None
    tensor, *others = args
    if not isinstance(tensor, Node) or not isinstance(tensor.meta.get("val"), torch.Tensor):
        return None
    if any(isinstance(leaf, Node) for leaf in pytree.tree_leaves((others, node.kwargs))):
        return None
    return tensor, Check(op.name().removeprefix("aten::"), tuple(others), dict(node.kwargs))


def checked(
    function: Callable[[list[Any]], Sequence[Any]], checks: Sequence[Check], inputs: list[Any]
) -> Sequence[Any]:
    """Run ``function``, and the checks on its last results."""
    results = function(inputs)
    for tensor, check in zip(results[-len(checks) :], checks, strict=True):
        check(tensor)
    return results[: -len(checks)]
