"""The ops of a kernel's body by NumPy: a ``linalg`` op at once, over its index maps."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch_mlir import ir

from shardc.diagnostics.kernels import KernelNotSupported

FLOATS = {"f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
INTS = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64, "index": np.int64}
UFUNCS: dict[str, Callable[..., Any]] = {
    "addf": np.add, "addi": np.add, "andi": np.bitwise_and, "divf": np.true_divide, "maximumf": np.maximum,
    "maxsi": np.maximum, "minsi": np.minimum, "mulf": np.multiply, "muli": np.multiply, "negf": np.negative,
    "ori": np.bitwise_or, "subf": np.subtract, "subi": np.subtract, "select": np.where, "absf": np.abs,
    "erf": np.vectorize(math.erf, otypes=[np.float64]), "exp": np.exp, "log": np.log, "powf": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "tanh": np.tanh, "xori": np.bitwise_xor,
}  # fmt: skip
CASTS = ("extf", "truncf", "extsi", "extui", "trunci", "index_cast", "sitofp", "uitofp", "fptosi")
COMPARE = {"eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt}
COMPARE["le"] = operator.le
FLOAT_ORDER = ("false", "eq", "gt", "ge", "lt", "le", "ne", "ord", "eq", "gt", "ge", "lt", "le", "ne")
INT_ORDER = ("eq", "ne", "lt", "le", "gt", "ge")
TENSORS = ("generic", "fill", "empty", "constant", "return")
MOVES = ("expand_shape", "collapse_shape", "extract_slice")


def refused(function: ir.Operation) -> KernelNotSupported | None:
    """What a kernel holds that there is no code for."""
    names = [op.operation.name for op in function.regions[0].blocks[0].operations]
    unknown = [
        name for name in names if name.startswith("kern.") or name.partition(".")[2] not in TENSORS + MOVES
    ]
    return KernelNotSupported(what=unknown[0]) if unknown else None


def array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def run(op: ir.Operation, values: dict[ir.Value, Any]) -> list[np.ndarray]:
    """The results of an op on tensors."""
    if op.name == "linalg.generic":
        return _generic(op, values)
    type_ = op.results[0].type
    if op.name == "arith.constant" and not isinstance(op.attributes["value"], ir.DenseElementsAttr):
        return [_cast(op.attributes["value"].value, type_)]
    shape = ir.RankedTensorType(type_).shape
    if op.name == "arith.constant":
        value = op.attributes["value"]
        numbers = np.full(shape, value.get_splat_value().value) if value.is_splat else np.array(list(value))
        return [_cast(numbers.reshape(shape), type_.element_type)]
    if op.name == "tensor.empty":
        return [_cast(np.zeros(shape), type_.element_type)]
    first = values[op.operands[0]]
    if op.name == "tensor.extract_slice":
        starts, strides = (list(op.attributes[f"static_{name}"]) for name in ("offsets", "strides"))
        ends = (a + n * step for a, n, step in zip(starts, shape, strides, strict=True))
        return [first[tuple(map(slice, starts, ends, strides))]]
    return [np.full(shape, first) if op.name == "linalg.fill" else first.reshape(shape)]


def _generic(op: ir.Operation, values: dict[ir.Value, Any]) -> list[np.ndarray]:
    """Every element of the loops at once: an array's dims are the loops'."""
    maps = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
    sizes = [0] * maps[0].n_dims
    for value, map_ in zip(op.operands, maps, strict=True):
        for e, size in zip(map_.results, np.shape(values[value]), strict=True):
            if isinstance(e, ir.AffineDimExpr):
                sizes[ir.AffineDimExpr(e).position] = size
    grid, block = np.indices(sizes, sparse=True), op.regions[0].blocks[0]
    reduced = tuple(d for d, k in enumerate(op.attributes["iterator_types"]) if "reduction" in str(k))
    inner = dict(values)
    for argument, value, map_ in zip(block.arguments, op.operands, maps, strict=True):
        index = tuple(_index(e, grid) for e in map_.results)
        inner[argument] = np.asarray(values[value])[index]
    *ops, end = (view.operation for view in block.operations)
    outs = list(block.arguments)[len(op.operands) - len(op.results) :]
    ends, results = [], []
    for step in ops:
        if reduced and any(out in step.operands for out in outs):
            ends.append(step)  # folds a term into the output
        else:
            inner[step.results[0]] = _element(step, inner, grid)
    for value, out, map_, result in zip(
        end.operands, outs, maps[len(maps) - len(outs) :], op.results, strict=True
    ):
        found = inner.get(value)
        if reduced:
            step = next(s for s in ends if s.results[0] == value)
            (term,) = [v for v in step.operands if v != out]
            fold = UFUNCS[step.name.partition(".")[2]]
            assert isinstance(fold, np.ufunc)
            total = fold.reduce(np.broadcast_to(inner[term], sizes), reduced, keepdims=True)
            found = fold(total, inner[out])
        kept = [1 if d in reduced else n for d, n in enumerate(sizes)]
        order = [ir.AffineDimExpr(e).position for e in map_.results]
        found = np.broadcast_to(found, kept).squeeze(reduced).transpose(np.argsort(np.argsort(order)))
        results.append(_cast(found, result.type.element_type))
    return results


def _index(e: ir.AffineExpr, grid: Sequence[np.ndarray]) -> Any:
    if isinstance(e, ir.AffineDimExpr):
        return grid[ir.AffineDimExpr(e).position]
    if isinstance(e, ir.AffineConstantExpr):
        return ir.AffineConstantExpr(e).value
    kinds = ((ir.AffineAddExpr, np.add), (ir.AffineMulExpr, np.multiply), (ir.AffineModExpr, np.remainder))
    combine = next((f for kind, f in kinds if isinstance(e, kind)), np.floor_divide)
    return combine(*(_index(part, grid) for part in (ir.AffineBinaryExpr(e).lhs, ir.AffineBinaryExpr(e).rhs)))


def _element(op: ir.Operation, values: dict[ir.Value, Any], grid: Sequence[np.ndarray]) -> Any:
    name, type_ = op.name.partition(".")[2], op.results[0].type
    given = [values[v] for v in op.operands]
    if name == "constant":
        return _cast(op.attributes["value"].value, type_)
    if name == "index":
        return grid[op.attributes["dim"].value]
    if name == "extract":
        return given[0][tuple(given[1:])]
    if name in ("cmpf", "cmpi"):
        number = op.attributes["predicate"].value
        return COMPARE[(FLOAT_ORDER if name == "cmpf" else INT_ORDER)[number]](*given)
    return _cast(given[0] if name in CASTS else UFUNCS[name](*given), type_)


def _cast(x: Any, type_: ir.Type) -> np.ndarray:
    """As a value of an element type; numbers of bf16 are f32 that have been rounded."""
    if str(type_) == "bf16":
        return torch.tensor(np.asarray(x, np.float32)).bfloat16().float().numpy()
    return np.asarray(x).astype({**FLOATS, **INTS}[str(type_)])
