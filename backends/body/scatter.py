"""What a function whose body is one ``kern.scatter_add`` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.body.signature import config_of, symbols_and_shapes
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.kernel import IN_PLACE
from shardc.dialects.kern.scatter_add import ScatterAdd, ScatterAddOp, scatter_add_of
from shardc.dialects.kern.size import Symbol


@dataclass(frozen=True)
class ScatterBody:
    """``tells``: whether ``wrong`` is a result; ``in_place``: out is in the memory of init. ``config`` is what
    ``#kern.config`` says."""

    spec: ScatterAdd
    tells: bool
    in_place: bool
    symbols: list[Symbol]
    config: Mapping[str, int]


def is_scatter(function: ir.Operation) -> bool:
    """Whether a function of :func:`shardc.backends.body.extract.extract_kernels` holds a scatter_add."""
    return any(
        op.operation.name == ScatterAddOp.OPERATION_NAME for op in function.regions[0].blocks[0].operations
    )


def read_scatter(function: ir.Operation) -> ScatterBody:
    """Of a function with :func:`is_scatter`.

    Raises:
        KernelNotSupported: the body holds more than one scatter_add, of its arguments and with out as its first
            result.
    """
    block = function.regions[0].blocks[0]
    op, *rest = [o.operation for o in block.operations]
    symbols, shapes = symbols_and_shapes(function)
    tensors = list(block.arguments)[: len(block.arguments) - len(symbols)]
    results = list(rest[0].operands) if len(rest) == 1 else []
    alone = op.name == ScatterAddOp.OPERATION_NAME and list(op.operands) == tensors
    if not alone or results != list(op.results)[: len(results)] or not results:
        raise KernelNotSupported(what="a scatter_add that shares a kernel with other ops")
    in_place = "kern.in_place" in function.attributes
    if in_place and list(ir.DenseI64ArrayAttr(function.attributes["kern.in_place"])) != [0, 2]:
        raise KernelNotSupported(what=f"a scatter_add whose {IN_PLACE} is not out in the memory of init")
    return ScatterBody(scatter_add_of(op, shapes), len(results) > 1, in_place, symbols, config_of(function))
