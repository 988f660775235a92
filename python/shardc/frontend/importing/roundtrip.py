"""Proof that a module has the calls of its FX graph: the same operators with the same arguments.

The importer deviates in places: scalars become tensors, ``empty`` becomes ``zeros``, and its number of a
dtype differs from PyTorch's. A graph with such a deviation is not compiled, since its results would be wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node
from torch.fx.node import Argument
from torch_mlir import ir
from torch_mlir.extras.fx_importer import TENSOR_SCALAR_OP_CONVERTER, TORCH_MEMORY_FORMAT_TO_INT

from shardc.diagnostics.dynamo import GraphNotCompiled
from shardc.dialects.aten.call import Call, CallReader, IntValue, is_constant
from shardc.dialects.aten.schema import dtype_of, parameters, target_of
from shardc.dialects.aten.types import TensorType
from shardc.frontend.importing.recorder import line_of
from shardc.frontend.nodes import arguments, calls, listed, node_at, operator_of

_DTYPE_KEPT = {
    *("aten.eq.Scalar", "aten.ne.Scalar", "aten.constant_pad_nd"),
    *("aten.fill.Scalar", "aten.full_like", "aten.masked_fill.Scalar", "aten.new_full"),
}
"""Operators that treat bools like the ints that the importer makes from them."""


@dataclass(frozen=True)
class Result:
    """Placeholder in an argument list for a tensor or size: a result of a call, or an input."""

    node: str
    number: int


@dataclass(frozen=True)
class ExpectedCall:
    """One call of the graph. ``args`` are in schema order with defaults; a Result replaces each value."""

    name: str
    target: str
    args: tuple[object, ...]
    results: tuple[TensorType | None, ...]
    where: str | None


def expected_calls(graph: Graph) -> list[ExpectedCall]:
    """Return the graph's calls in order. To be called before the import, which may rewrite the graph."""
    return [_expected(node) for node in calls(graph) if node.target is not operator.getitem]


def check_calls(
    module: ir.Module, inputs: Sequence[str], wanted: Sequence[ExpectedCall], keep: Collection[str]
) -> dict[Result, ir.Value]:
    """Return the values of the module's function by their place in the graph.

    Calls named in ``keep`` get their name as ``dist.name``, which prevents merging them. Raises
    GraphNotCompiled if the function differs from ``wanted`` on ``inputs``.
    """
    reader = CallReader()
    block = module.body.operations[0].regions[0].blocks[0]
    values = {Result(name, 0): value for name, value in zip(inputs, block.arguments, strict=True)}
    ops = [view.operation for view in block.operations if not is_constant(view.operation)][:-1]
    for op, expected in zip(ops, wanted, strict=False):
        problem = _difference(reader.read(op), expected, values)
        if problem:
            raise GraphNotCompiled(op=expected.target, reason=problem, where=expected.where)
        values |= {Result(expected.name, number): value for number, value in enumerate(op.results)}
        if expected.name in keep:
            op.attributes["dist.name"] = ir.StringAttr.get(expected.name, module.context)
    if len(ops) != len(wanted):
        raise GraphNotCompiled(op="the graph", reason=f"{len(wanted)} calls were imported as {len(ops)}")
    return values


def _expected(node: Node) -> ExpectedCall:
    args = tuple(reference(_torch_value(declared, arg)) for declared, arg in arguments(node))
    results = tuple(map(_type, listed(node.meta["val"])))
    return ExpectedCall(node.name, _imported_target(node), args, results, line_of(node.meta))


def _imported_target(node: Node) -> str:
    """Return the imported target: an operator on a tensor and a number becomes the overload for numbers."""
    name = f"torch.{target_of(operator_of(node))}"
    if name in TENSOR_SCALAR_OP_CONVERTER and _is_number(node.args[1]):
        name = TENSOR_SCALAR_OP_CONVERTER[name]
    return name.removeprefix("torch.")


def _is_number(arg: Argument) -> bool:
    value = arg.meta["val"] if isinstance(arg, Node) else arg
    return isinstance(value, int | float | torch.SymInt | torch.SymFloat)


def _type(value: torch.Tensor | torch.SymInt | None) -> TensorType | None:
    if not isinstance(value, torch.Tensor):
        return None
    sizes = tuple(size if isinstance(size, int) else None for size in value.shape)
    return TensorType(sizes, value.dtype)  # type: ignore[arg-type]


def _torch_value(parameter: torch.Argument, value: Argument) -> Argument:
    """Return an argument as PyTorch has it; a schema's default gives a dtype by its number."""
    return dtype_of(value) if isinstance(value, int) and "ScalarType" in str(parameter.real_type) else value


def reference(arg: object) -> object:
    """Return an argument with each node replaced by its Result."""
    if isinstance(arg, list | tuple):
        return tuple(reference(a) for a in arg)
    return result_of(arg) if isinstance(arg, Node) else arg


def result_of(node: Node) -> Result:
    """Return a node as a result of a call."""
    if node.target is not operator.getitem:
        return Result(node.name, 0)
    number = node.args[1]
    assert isinstance(number, int)
    return Result(node_at(node).name, number)


def _difference(call: Call, expected: ExpectedCall, values: dict[Result, ir.Value]) -> str | None:
    spec = call.spec
    if spec.target != expected.target:
        return f"it was imported as {spec.target}"
    if spec.results != expected.results:
        return f"its results were imported as {spec.results}"
    operands = iter(call.operands)
    keeps_dtype = spec.target in _DTYPE_KEPT or _names_dtype(expected)
    comparison = _Comparison(keeps_dtype, operands, values)
    declared = parameters(spec.target)
    for actual, wanted, (name, kind, _) in zip(spec.args, expected.args, declared, strict=True):
        if name == "pin_memory" and wanted:
            return "it asks for pinned memory"
        if not comparison.same(actual, wanted, kind):
            return f"its argument {name} was imported as {actual} instead of {wanted}"
    return None


def _names_dtype(expected: ExpectedCall) -> bool:
    names = [name for name, _, _ in parameters(expected.target)]
    return "dtype" in names and expected.args[names.index("dtype")] is not None


@dataclass
class _Comparison:
    keeps_dtype: bool
    operands: Iterator[ir.Value]
    values: dict[Result, ir.Value]

    def same(self, actual: object, wanted: object, kind: str) -> bool:
        """Return whether an argument of the schema's type ``kind`` was imported correctly."""
        if isinstance(wanted, Result):
            is_value = isinstance(actual, TensorType | IntValue)
            return is_value and next(self.operands) == self.values.get(wanted)
        if isinstance(wanted, tuple):
            if not isinstance(actual, tuple) or len(actual) != len(wanted):
                return False
            return all(self.same(a, w, kind) for a, w in zip(actual, wanted, strict=True))
        if "Device" in kind:
            return (wanted is None) == (actual is None)
        if "Layout" in kind:
            return wanted in (None, torch.strided)
        if isinstance(wanted, torch.memory_format):
            return actual == TORCH_MEMORY_FORMAT_TO_INT[wanted]
        return self._same_constant(actual, wanted, kind)

    def _same_constant(self, actual: object, wanted: object, kind: str) -> bool:
        if "float" in kind and isinstance(wanted, int):
            wanted = float(wanted)
        if isinstance(wanted, bool) and not isinstance(actual, bool) and self.keeps_dtype:
            wanted = int(wanted)
        if type(actual) is not type(wanted):
            return False
        return actual == wanted or (actual != actual and wanted != wanted)
