"""Inserts nodes into a traced graph, with the metadata that the import needs."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import Argument, Target

from shardc.frontend.fake_results import corrected
from shardc.runtime.torch_private import FakeTensorMode, OpOverload, schema_of

aten = torch.ops.aten


def insert_before(
    node: Node,
    target: Target,
    args: tuple[Argument, ...],
    kwargs: dict[str, Argument] | None = None,
    mode: FakeTensorMode | None = None,
    like: Node | None = None,
) -> Node:
    """Insert a node before ``node``, with its value, and the phase and lines of ``like`` or ``node``.

    ``mode`` is the fake mode of the graph's tensors; it is needed if ``node`` is no tensor.
    """
    assert callable(target)
    with node.graph.inserting_before(node):
        new = node.graph.call_function(target, args, kwargs or {})
    new.meta = {k: v for k, v in (like or node).meta.items() if k not in ("val", "tensor_meta")}
    values: tuple[Any, Any] = torch.fx.map_arg((args, kwargs or {}), lambda n: n.meta["val"])
    with mode or node.meta["val"].fake_mode:
        new.meta["val"] = corrected(target, target(*values[0], **values[1]), *values)
    return new


def tensors_for_numbers(node: Node) -> None:
    """Turn numbers in place of tensors, as in ``torch.add(0.5, x)``, into 0-d tensors of the right dtype.

    The importer would make them f64 or i64 tensors, with wrong result types.
    """
    if not isinstance(node.target, OpOverload):
        return
    args = list(node.args)
    for position, (argument, arg) in enumerate(zip(schema_of(node.target).arguments, args, strict=False)):
        if str(argument.type) == "Tensor" and isinstance(arg, (bool, int, float)):
            other = next((a.meta["val"] for a in node.args if isinstance(a, Node)), None)
            dtype = torch.result_type(other, arg) if other is not None else torch.tensor(arg).dtype
            args[position] = insert_before(node, aten.full.default, ([], arg), {"dtype": dtype})
    node.args = tuple(args)


def scalar_overload(node: Node) -> OpOverload | None:
    """Return the overload of a call's operator that takes a number in place of a tensor, or None.

    None if the call has no number in such a place, or there is no such overload. ``div.Tensor_mode`` of a
    tensor and a number is ``div.Scalar_mode``.
    """
    if not isinstance(node.target, OpOverload):
        return None
    schema = schema_of(node.target)
    declared = zip(schema.arguments, node.args, strict=False)
    if not any(str(d.type) == "Tensor" and isinstance(arg, int | float) for d, arg in declared):
        return None
    name = schema.overload_name.replace("Tensor", "Scalar")
    return getattr(node.target.overloadpacket, name, None) if name != schema.overload_name else None
