"""Checks that an AOTAutograd graph can be imported, and names the cause for the user if not."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from shardc.diagnostics.dynamo import GraphNotCompiled
from shardc.dialects.aten.python_numbers import overload_of
from shardc.dialects.aten.schema import number_of
from shardc.frontend.importing.recorder import line_of
from shardc.frontend.nodes import final_writes, listed, outputs
from shardc.runtime.torch_private import FakeTensor, HigherOrderOperator, OpOverload, pytree, schema_of

_SYMBOLIC = (
    "is a symbolic truth value, which is not imported, torch.compile(dynamic=False) makes it a constant"
)


def check_graph(module: GraphModule) -> torch.device:
    """Return the one device of the graph; a GPU graph may also have 0-d CPU tensors.

    Raises GraphNotCompiled.
    """
    devices: dict[torch.device, Node] = {}
    scalar: Node | None = None
    writes = set(final_writes(module.graph))
    for node in module.graph.nodes:
        if node.op == "output":
            for returned in outputs(module.graph):
                if returned is not None and not isinstance(returned, Node):
                    raise _cause(node, f"it returns {returned!r}, not a tensor")
            continue
        if node.op == "call_function":
            if node not in writes:
                _check_target(node)
        elif node.op == "get_attr":
            _check_constant(node, getattr(module, str(node.target), None))
        elif node.op != "placeholder":
            raise _cause(node, "it calls a Python object, not an operator")
        for value in () if _is_passed_through(node) else _checked_values(node):
            if value.device.type == "cpu" and value.dim() == 0:
                scalar = scalar or node
            else:
                devices.setdefault(value.device, node)
    if scalar is not None and not any(device.type == "cuda" for device in devices):
        devices.setdefault(torch.device("cpu"), scalar)
    if len(devices) > 1:
        first, second = list(devices)[:2]
        raise _cause(
            devices[second],
            f"it is on {second}, other tensors are on {first}; a compiled graph has one device, and "
            "only 0-d tensors may be on the CPU",
        )
    return next(iter(devices), torch.device("cpu"))


def constants_of(module: GraphModule) -> list[torch.Tensor]:
    """Return the tensors that the graph's module holds, in the order in which the graph names them."""
    return [getattr(module, str(node.target)) for node in module.graph.find_nodes(op="get_attr")]


def _check_target(node: Node) -> None:
    target = node.target
    if target is operator.getitem or overload_of(node) is not None or target is torch.sym_sum:
        return
    if isinstance(target, HigherOrderOperator):
        raise _cause(node, "it is a higher-order operator")
    if not isinstance(target, OpOverload):
        maker = next((n for n in node.graph.nodes if _has_unbacked_size(n)), None)
        if maker is not None:  # Dynamo asserts about such sizes in Python
            raise _cause(maker, "it makes a size that depends on values, which is not imported")
        raise _cause(node, "it computes with Python numbers, not tensors")
    if any(isinstance(leaf, complex) for leaf in pytree.tree_leaves((node.args, node.kwargs))):
        raise _cause(node, "one of its arguments is a complex number, not a tensor")
    declared = schema_of(target)
    if declared.is_mutable:
        raise _cause(node, "it writes to its arguments")
    if declared.name in ("aten::as_strided", "aten::as_strided_scatter"):
        raise _cause(node, "it addresses memory, not elements")
    if not declared.returns:
        raise _cause(node, "it is called for an effect, not for a result")


def _has_unbacked_size(node: Node) -> bool:
    values = listed(node.meta.get("val"))
    return any(isinstance(v, torch.Tensor | torch.SymInt) and bool(free_unbacked_symbols(v)) for v in values)


def _check_constant(node: Node, value: object) -> None:
    if isinstance(value, GraphModule):
        return  # the operator that calls it is rejected
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        raise _cause(node, f"the graph holds a {type(value).__name__}")


def _checked_values(node: Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    if isinstance(value, list) and node.op == "call_function":
        raise _cause(node, "it returns a list of tensors")
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, torch.Tensor):
            _check_tensor(node, item)
            yield item
        elif isinstance(item, torch.SymBool):
            raise _cause(node, _SYMBOLIC)
        elif not isinstance(item, torch.SymInt | torch.SymFloat | None) and not _is_passed_through(node):
            raise _cause(node, f"it is a {type(item).__name__}, not a tensor")


def _is_passed_through(node: Node) -> bool:
    """Return whether an input (for example a device mesh) is at most returned unchanged."""
    return node.op == "placeholder" and all(user.op == "output" for user in node.users)


def _check_tensor(node: Node, value: torch.Tensor) -> None:
    if value.layout is not torch.strided:
        raise _cause(node, f"the layout {value.layout} is not imported")
    if not _has_number(value.dtype):
        raise _cause(node, f"the dtype {value.dtype} is not imported")


def _has_number(dtype: torch.dtype) -> bool:
    try:
        number_of(dtype)
    except KeyError:
        return False
    return True


def _cause(node: Node, reason: str) -> GraphNotCompiled:
    op = "an input" if node.op == "placeholder" else str(node.target)
    return GraphNotCompiled(op=op, reason=reason, where=line_of(node.meta))
