"""A kernel's body on real tensors: each ``linalg`` op at once, over its index maps, with torch ops (no element loops).

An operand becomes a tensor with one dim for each dim of the iteration space (of size 1 where its map does not read
it), the op's region is evaluated on such tensors, and what it yields is put in the order of the result's map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch_mlir import ir

from shardc.backends.eager.aten import WIDE
from shardc.backends.eager.attention import run_attention
from shardc.backends.eager.grouped_matmul import run_grouped_matmul
from shardc.backends.eager.linear_cross_entropy import run_linear_cross_entropy
from shardc.backends.eager.scalar_ops import EVALUATE, REDUCE, attribute_value
from shardc.backends.eager.scatter import run_scatter_add
from shardc.dialects.kern.kernel import checks, kernel_body
from shardc.dialects.kern.types import read_builtin
from shardc.runtime.kernel_call import check

Tensor = torch.Tensor
Environment = dict[ir.Value, Any]


def run_kernel(op: ir.Operation, operands: Sequence[Tensor], widen: bool = False) -> list[Tensor]:
    """The results of a ``kern.kernel`` on ``operands``. ``widen``: every floating type stands for f64.

    Raises NotImplementedError for an op that this interpreter does not know, and IndexOutOfRange where a check fails.
    """
    results = _run(*kernel_body(op), operands, widen)
    for number, message in checks(op).items():
        check(int(results[number].item()), message)
    return results


def run_function(function: ir.Operation, operands: Sequence[Tensor], widen: bool = False) -> list[Tensor]:
    """The same for a function of :func:`shardc.backends.body.extract.extract`, whose checks are left to the caller."""
    block = function.regions[0].blocks[0]
    *ops, last = (view.operation for view in block.operations)
    return _run(list(block.arguments), ops, list(last.operands), operands, widen)


def _run(
    arguments: Sequence[ir.Value],
    ops: Sequence[ir.Operation],
    yielded: Sequence[ir.Value],
    operands: Sequence[Tensor],
    widen: bool,
) -> list[Tensor]:
    operands = [v if isinstance(v, Tensor) else torch.tensor(v) for v in operands]
    values: Environment = dict(zip(arguments, map(_to_memory, operands), strict=True))
    for inner in ops:
        values[inner.results[0]] = _Body(values, widen).run(inner)
        for result, value in zip(inner.results, _listed(values[inner.results[0]]), strict=True):
            values[result] = value
    return [_from_memory(values[v], v.type, widen) for v in yielded]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _to_memory(tensor: Tensor) -> Tensor:
    return tensor.to(torch.int8) if tensor.dtype == torch.bool else tensor


def _from_memory(tensor: Tensor, type_: ir.Type, widen: bool) -> Tensor:
    found = read_builtin(type_)
    assert found is not None
    dtype = WIDE.get(found.dtype, found.dtype) if widen else found.dtype
    return tensor.to(dtype).clone()


class _Body:
    """Runs the ops of one kernel."""

    def __init__(self, values: Environment, widen: bool) -> None:
        self._values, self._widen = values, widen

    def run(self, op: ir.Operation) -> Any:
        """The result of an op of the body, a list of them if it has several."""
        match op.name:
            case "arith.constant":
                return attribute_value(op, self._widen)
            case "tensor.empty":
                return torch.empty(self._shape(op.results[0], op.operands), dtype=self._dtype(op.results[0]))
            case "tensor.expand_shape":
                return self._values[op.operands[0]].reshape(self._shape(op.results[0], list(op.operands)[1:]))
            case "tensor.collapse_shape":
                tensor = self._values[op.operands[0]]
                groups = [
                    [tensor.shape[ir.IntegerAttr(d).value] for d in group]
                    for group in op.attributes["reassociation"]
                ]
                return tensor.reshape([prod(group) for group in groups])
            case "arith.muli" | "arith.addi":
                left, right = (self._values[v] for v in op.operands)
                return left * right if op.name == "arith.muli" else left + right
            case "tensor.extract_slice":
                static = (
                    list(ir.DenseI64ArrayAttr(op.attributes[f"static_{n}"]))
                    for n in ("offsets", "sizes", "strides")
                )
                offsets, sizes, strides = static
                parts = zip(offsets, self._sizes(sizes, list(op.operands)[1:]), strides, strict=True)
                index = tuple(slice(first, first + size * step, step) for first, size, step in parts)
                return self._values[op.operands[0]][index]
            case "linalg.fill":
                value, out = (self._values[v] for v in op.operands)
                return torch.full_like(out, value.item() if isinstance(value, Tensor) else value)
            case "linalg.generic":
                return self._generic(op)
            case "kern.attention" | "kern.attention_backward":
                return run_attention(op, [self._values[v] for v in op.operands], self._widen)
            case "kern.linear_cross_entropy" | "kern.linear_cross_entropy_backward":
                return run_linear_cross_entropy(op, [self._values[v] for v in op.operands], self._widen)
            case "kern.grouped_matmul":
                return run_grouped_matmul(op, [self._values[v] for v in op.operands], self._widen)
            case "kern.scatter_add":
                return run_scatter_add(op, [self._values[v] for v in op.operands])
        raise NotImplementedError(f"the oracle does not know {op.name} in a kernel")

    def _shape(self, value: ir.Value, sizes: Sequence[ir.Value]) -> list[int]:
        return self._sizes(list(ir.RankedTensorType(value.type).shape), sizes)

    def _sizes(self, static: Sequence[int], sizes: Sequence[ir.Value]) -> list[int]:
        """``static`` with ``sizes`` where it has no number."""
        rest = iter(sizes)
        return [int(self._values[next(rest)]) if n == ir.ShapedType.get_dynamic_size() else n for n in static]

    def _dtype(self, value: ir.Value) -> torch.dtype:
        element = str(ir.RankedTensorType(value.type).element_type)
        if element == "i8":
            return torch.int8
        found = read_builtin(value.type)
        assert found is not None
        return WIDE.get(found.dtype, found.dtype) if self._widen else found.dtype

    def _generic(self, op: ir.Operation) -> list[Tensor]:
        maps = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
        reduced = [d for d, kind in enumerate(op.attributes["iterator_types"]) if "reduction" in str(kind)]
        inputs, outputs = _segments(op)
        sizes = _sizes(maps, [list(torch.as_tensor(self._values[v]).shape) for v in op.operands])
        block = op.regions[0].blocks[0]
        values: Environment = {}
        for argument, value, map_ in zip(block.arguments, op.operands, maps, strict=True):
            values[argument] = _spread(self._values[value], map_, sizes)
        terminator = list(block.operations)[-1].operation
        accumulators = list(block.arguments)[inputs:]
        never: list[ir.Value] = []
        for value, accumulator in zip(terminator.operands, accumulators, strict=True):
            if reduced and (product := _summed_product(value, accumulator)) is not None:
                never += [product, value]
        for inner in list(block.operations)[:-1]:
            if not any(value == inner.results[0] for value in never):
                _evaluate(inner.operation, values, self._values, sizes, self._widen)
        results = []
        for number in range(outputs):
            value, map_ = terminator.operands[number], maps[inputs + number]
            if reduced:
                found = _reduce(value, accumulators[number], values, sizes, reduced)
            else:
                found = values[value] if value in values else self._values[value]
            kept = [size for d, size in enumerate(sizes) if d not in reduced]
            found = torch.as_tensor(found).squeeze(tuple(reduced)) if reduced else torch.as_tensor(found)
            positions = [d for d in range(len(sizes)) if d not in reduced]
            order = [positions.index(e) for e in _positions(map_)]
            result = found.expand(kept).permute(order)
            results.append(result.to(self._dtype(op.results[number])))
        return results


def _segments(op: ir.Operation) -> tuple[int, int]:
    inputs, outputs = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    return inputs, outputs


def _positions(map_: ir.AffineMap) -> list[int]:
    return [ir.AffineDimExpr(e).position for e in map_.results]


def _sizes(maps: list[ir.AffineMap], shapes: list[list[int]]) -> list[int]:
    """The size of each dim of the iteration space: that of a dim that some operand reads plainly."""
    sizes: dict[int, int] = {}
    for map_, shape in zip(maps, shapes, strict=True):
        for expression, size in zip(map_.results, shape, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                sizes[ir.AffineDimExpr(expression).position] = size
    return [sizes[d] for d in range(maps[0].n_dims)]


def _spread(tensor: Tensor, map_: ir.AffineMap, sizes: list[int]) -> Tensor:
    """``tensor`` with the dims of the iteration space, of size 1 where the map does not read one."""
    if all(isinstance(e, ir.AffineDimExpr) for e in map_.results) and len(set(_positions(map_))) == len(
        map_.results
    ):
        positions = _positions(map_)
        order = sorted(range(len(positions)), key=positions.__getitem__)
        return tensor.permute(order).reshape([n if d in positions else 1 for d, n in enumerate(sizes)])
    if not map_.results:
        return tensor.reshape([1] * len(sizes))
    return tensor[tuple(_index(e, sizes) for e in map_.results)]


def _index(expression: ir.AffineExpr, sizes: list[int]) -> Tensor:
    """An index expression over the iteration space, as a tensor that broadcasts to it."""
    if isinstance(expression, ir.AffineDimExpr):
        d = ir.AffineDimExpr(expression).position
        return _range(d, sizes)
    if isinstance(expression, ir.AffineConstantExpr):
        return torch.tensor(ir.AffineConstantExpr(expression).value).reshape([1] * len(sizes))
    for kind, combine in _AFFINE.items():
        if isinstance(expression, kind):
            binary = ir.AffineBinaryExpr(expression)
            return combine(_index(binary.lhs, sizes), _index(binary.rhs, sizes))
    raise NotImplementedError(f"the oracle does not know the index {expression}")


_AFFINE: dict[type, Callable[[Tensor, Tensor], Tensor]] = {
    ir.AffineAddExpr: torch.add,
    ir.AffineMulExpr: torch.mul,
    ir.AffineModExpr: torch.remainder,
    ir.AffineFloorDivExpr: partial(torch.div, rounding_mode="floor"),
}


def _range(d: int, sizes: list[int]) -> Tensor:
    return torch.arange(sizes[d]).reshape([sizes[d] if i == d else 1 for i in range(len(sizes))])


def _evaluate(
    op: ir.Operation, values: Environment, outer: Environment, sizes: list[int], widen: bool
) -> None:
    if op.name == "arith.constant":
        values[op.results[0]] = attribute_value(op, widen)
    elif op.name == "linalg.index":
        values[op.results[0]] = _range(ir.IntegerAttr(op.attributes["dim"]).value, sizes)
    elif op.name == "tensor.extract":
        tensor, *index = (values[v] if v in values else outer[v] for v in op.operands)
        values[op.results[0]] = tensor[tuple(index)]
    elif op.name in EVALUATE:
        operands = [values[v] if v in values else outer[v] for v in op.operands]
        values[op.results[0]] = EVALUATE[op.name](op, widen, *operands)
    else:
        raise NotImplementedError(f"the oracle does not know {op.name} in a kernel")


def _reduce(
    value: ir.Value, accumulator: ir.Value, values: Environment, sizes: list[int], reduced: list[int]
) -> Tensor:
    """The reduction whose step is ``value``: an op of the accumulator and of something that does not depend on it."""
    step = None if isinstance(value, ir.BlockArgument) else value.owner
    if step is None or step.name not in REDUCE or accumulator not in step.operands:
        raise NotImplementedError("the oracle knows reductions that end in one op of the accumulator")
    term = next(v for v in step.operands if v != accumulator)
    if _summed_product(value, accumulator) is not None:
        total = _contract([values[v] for v in term.owner.operands], sizes, reduced)
    else:
        total = REDUCE[step.name](torch.as_tensor(values[term]).expand(sizes), reduced)
    # The reduction starts from what the output held; its dims that are reduced have size 1 here.
    return EVALUATE[step.name](step, False, total, values[accumulator])


def _summed_product(value: ir.Value, accumulator: ir.Value) -> ir.Value | None:
    """The product of two tensors whose sum ``value`` is: its terms are never made, a matmul has too many."""
    step = None if isinstance(value, ir.BlockArgument) else value.owner
    if step is None or step.name != "arith.addf" or accumulator not in step.operands:
        return None
    term = next(v for v in step.operands if v != accumulator)
    made = None if isinstance(term, ir.BlockArgument) else term.owner
    if made is None or made.name != "arith.mulf" or any(len(list(v.uses)) != 1 for v in (term, value)):
        return None
    block = step.operation.block
    owners = [v.owner if isinstance(v, ir.BlockArgument) else v.owner.operation.block for v in made.operands]
    return term if all(owner == block for owner in owners) else None


def _contract(factors: Sequence[Any], sizes: list[int], reduced: list[int]) -> Tensor:
    """The sum of the factors' product over the dims ``reduced``, which stay with size 1."""
    dims = list(range(len(sizes)))
    tensors = [t.reshape([1] * len(sizes)) if t.ndim == 0 else t for t in map(torch.as_tensor, factors)]
    shape = [max(t.shape[d] for t in tensors) for d in dims]
    total = torch.einsum(*(x for t in tensors for x in (t, dims)), [d for d in dims if d not in reduced])
    total = total * prod(sizes[d] for d in reduced if shape[d] == 1)
    return total.reshape([1 if d in reduced else n for d, n in enumerate(shape)])
