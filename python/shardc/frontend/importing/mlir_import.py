"""Imports a finished step graph into the torch dialect: one function ``@step`` at level 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import (
    TORCH_DTYPE_TO_INT,
    FxImporter,
    GraphNodeImporter,
)
from torch_mlir.passmanager import PassManager

from shardc.diagnostics.frontend import UnsupportedDtype, UnsupportedOp
from shardc.dialects.aten.types import is_known
from shardc.dialects.kern.size import SHAPE, SHAPES, SYMBOLS
from shardc.frontend.importing.cleanup import where_of
from shardc.frontend.importing.graph_io import GRADIENT, PARAMETER, StepGraph
from shardc.frontend.importing.module_calls import MODULE
from shardc.frontend.importing.recorder import FRAMES, PHASE, Frames
from shardc.frontend.importing.sizes import SizeTable
from shardc.frontend.nodes import calls, list_at, placeholders, values_of
from shardc.frontend.step.spec import TensorSpec
from shardc.runtime.torch_private import OpOverload

FUNCTION = "step"

# Numbers of c10::ScalarType. The importer's own are one too high: complex64 would become complex128.
TORCH_DTYPE_TO_INT.update({torch.complex32: 8, torch.complex64: 9, torch.complex128: 10})


def import_step(step: StepGraph, context: ir.Context | None = None) -> ir.Module:
    """Import a step as a verified module with ``func.func @step``.

    Raises UnsupportedDtype and UnsupportedOp.
    """
    context = context or ir.Context()
    torch_dialect.register_dialect(context)
    _check_dtypes(step)
    sizes = SizeTable(step.module.graph)
    importer = _StepImporter(context, step.where, sizes)
    function = importer.import_stateless_graph(step.module.graph, func_name=FUNCTION)
    with context:
        values = [node.meta["val"] for node in placeholders(step.module.graph)]
        shapes = [sizes.shape(value, context) if sizes.hints else None for value in values]
        function.attributes["arg_attrs"] = _attributes(step.arguments, shapes)
        function.attributes["res_attrs"] = _attributes(step.results, [None] * len(step.results))
        if sizes.hints:
            function.attributes[SYMBOLS] = ir.DenseI64ArrayAttr.get(sizes.hints)
        # Each call has its own constants; sharing them removes a third of the ops.
        PassManager.parse("builtin.module(cse)").run(importer.module.operation)
    importer.module.operation.verify()
    return importer.module


def _check_dtypes(step: StepGraph) -> None:
    for spec in step.arguments:
        if not is_known(spec.dtype):
            raise UnsupportedDtype(name=spec.name, dtype=spec.dtype, where=f"{spec.role} {spec.name}")
    for node in calls(step.module.graph):
        for value in values_of(node):
            if not is_known(value.dtype):
                name = f"a result of {node.target}"
                raise UnsupportedDtype(name=name, dtype=value.dtype, where=where_of(node))


class _StepImporter(FxImporter):
    """Importer whose module and function have the location that requested the trace."""

    __slots__ = ["sizes", "where"]

    def __init__(self, context: ir.Context, where: Frames, sizes: SizeTable) -> None:
        self.sizes = sizes
        self.where = ir.Location.file(where[0][0], where[0][1], 0, context=context)
        super().__init__(
            module=ir.Module.create(self.where), config_check=False, graph_node_importer_cls=_NodeImporter
        )

    def _graph_to_function_meta(self, g: Graph) -> tuple[ir.FunctionType, ir.Location]:
        return super()._graph_to_function_meta(g)[0], self.where


class _NodeImporter(GraphNodeImporter):
    """Importer of nodes that sets ``dist.phase``, ``dist.name`` and the user's location on ops."""

    __slots__ = ["_locations"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._locations: dict[tuple[Frames, str | None], ir.Location] = {}

    @property
    def _step(self) -> _StepImporter:
        assert isinstance(self.fx_importer, _StepImporter)
        return self.fx_importer

    def import_nodes(self, nodes: Iterable[Node], **_: Any) -> None:
        with ir.InsertionPoint(self._b):
            for index, node in enumerate(nodes):
                if node.op == "placeholder":
                    self.bind_node_value(node, self._b.arguments[index])
                elif node.op == "output":
                    operands = [self.resolve_node_value(v) for v in list_at(node, 0) if isinstance(v, Node)]
                    ir.Operation.create("func.return", operands=operands, loc=self._step.where)
                elif isinstance(node.target, OpOverload):
                    self._import_op(node)
                else:
                    self._import_getitem(self._location(node), node)

    def _import_op(self, node: Node) -> None:
        try:
            self._import_torch_op_overload(self._location(node), node)
        except (NotImplementedError, TypeError, RuntimeError, AssertionError, KeyError) as error:
            reason = f"the importer has no form for {error}" if isinstance(error, KeyError) else str(error)
            raise UnsupportedOp(op=str(node.target), reason=reason, where=where_of(node)) from error
        op = self.resolve_node_value(node).owner
        op.attributes["dist.phase"] = ir.StringAttr.get(node.meta[PHASE], self._c)
        if call := node.meta.get(MODULE):
            op.attributes["dist.module"] = ir.StringAttr.get(call, self._c)
        if shapes := self._step.sizes.shapes(node.meta["val"], self._c):
            op.attributes[SHAPES] = shapes
        if gradients := _gradients(node):
            op.attributes["dist.name"] = ir.StringAttr.get(",".join(gradients), self._c)

    def _location(self, node: Node) -> ir.Location:
        """Return the user's lines as a chain of call sites; in the optimizer, named by the parameter."""
        frames, parameter = node.meta[FRAMES], node.meta.get(PARAMETER)
        known = self._locations.get((frames, parameter))
        if known is None:
            lines = [ir.Location.file(name, line, 0, context=self._c) for name, line in frames]
            known = ir.Location.callsite(lines[0], lines[1:], context=self._c) if lines[1:] else lines[0]
            if parameter is not None:
                known = ir.Location.name(parameter, known, context=self._c)
            self._locations[(frames, parameter)] = known
        return known


def _gradients(node: Node) -> list[str]:
    names = [f"grad:{name}" for name in node.meta.get(GRADIENT, ())]
    if isinstance(node.meta["val"], tuple | list):
        for user in node.users:
            names += [f"grad:{name}#{user.args[1]}" for name in user.meta.get(GRADIENT, ())]
    return names


def _attributes(specs: list[TensorSpec], shapes: Sequence[ir.Attribute | None]) -> ir.Attribute:
    made = []
    for spec, shape in zip(specs, shapes, strict=True):
        named = {"dist.name": ir.StringAttr.get(spec.name), "dist.role": ir.StringAttr.get(spec.role)}
        made.append(ir.DictAttr.get(named if shape is None else {**named, SHAPE: shape}))
    return ir.ArrayAttr.get(made)
