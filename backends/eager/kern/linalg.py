"""Execution of a kernel's body on real tensors: each ``linalg`` op as a whole, with torch ops.

An operand becomes a tensor with one dim for each dim of the iteration space, of size 1 if its map does not
use that dim. The op's region is evaluated on such tensors, and its results are permuted by the results' maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handlers
from shardc.backends.eager.aten import WIDE
from shardc.backends.eager.kern.scalar_ops import EVALUATE, REDUCE, attribute_value
from shardc.dialects.kern.generic import GenericLoops, Join, loop_of
from shardc.dialects.kern.kernel import checks, kernel_body, result_types
from shardc.dialects.kern.types import read_builtin
from shardc.runtime.kernels.kernel_call import check

Environment = dict[ir.Value, Any]


def run_kernel(op: ir.Operation, operands: Sequence[Tensor], widen: bool = False) -> list[Tensor]:
    """Run a ``kern.kernel`` on ``operands``; return its results. ``widen``: compute in f64.

    Raises NotImplementedError for an unknown op, and IndexOutOfRange if a check fails.
    """
    types = [WIDE.get(t.dtype, t.dtype) if widen else t.dtype for t in result_types(op)]
    results = [_in_dtype(r, t) for r, t in zip(_run(*kernel_body(op), operands, widen), types, strict=True)]
    for number, message in checks(op).items():
        check(int(results[number].item()), message)
    return results


def run_function(function: ir.Operation, operands: Sequence[Tensor], widen: bool = False) -> list[Tensor]:
    """Run a function of :func:`shardc.backends.body.extract.extract`. The caller must evaluate its checks."""
    block = function.regions[0].blocks[0]
    *ops, last = (view.operation for view in block.operations)
    yielded = list(last.operands)
    results = _run(list(block.arguments), ops, yielded, operands, widen)
    return [r.to(_read_dtype(v.type, widen)) for r, v in zip(results, yielded, strict=True)]


def _in_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """View bytes in their real dtype; cast others."""
    return x.view(torch.uint8) if dtype == torch.uint8 else x.to(dtype)


def _run(
    arguments: Sequence[ir.Value],
    ops: Sequence[ir.Operation],
    yielded: Sequence[ir.Value],
    operands: Sequence[Tensor],
    widen: bool,
) -> list[Tensor]:
    tensors = [v if isinstance(v, Tensor) else torch.tensor(v) for v in operands]
    in_memory = [t.view(torch.int8) if t.dtype in (torch.bool, torch.uint8) else t for t in tensors]
    values: Environment = dict(zip(arguments, in_memory, strict=True))
    for inner in ops:
        made = _Body(values, widen).run(inner)
        values.update(zip(inner.results, made if isinstance(made, list) else [made], strict=True))
    return [values[v].clone() for v in yielded]


def _read_dtype(type_: ir.Type, widen: bool) -> torch.dtype:
    found = read_builtin(type_)
    assert found is not None
    return WIDE.get(found.dtype, found.dtype) if widen else found.dtype


class _Body:
    """Interpreter of the ops of one kernel."""

    def __init__(self, values: Environment, widen: bool) -> None:
        self._values, self._widen = values, widen

    def run(self, op: ir.Operation) -> Any:
        """Run an op of the body; return its result, or a list of several results."""
        match op.name:
            case "arith.constant":
                return attribute_value(op, self._widen)
            case "tensor.empty":
                return torch.empty(self._shape(op.results[0], op.operands), dtype=self._dtype(op.results[0]))
            case "tensor.expand_shape":
                return self._values[op.operands[0]].reshape(self._shape(op.results[0], list(op.operands)[1:]))
            case "tensor.collapse_shape":
                tensor, groups = self._values[op.operands[0]], op.attributes["reassociation"]
                return tensor.reshape(
                    [prod(tensor.shape[ir.IntegerAttr(d).value] for d in g) for g in groups]
                )
            case "arith.muli" | "arith.addi":
                left, right = (self._values[v] for v in op.operands)
                return left * right if op.name == "arith.muli" else left + right
            case "tensor.extract_slice":
                names = ("static_offsets", "static_sizes", "static_strides")
                offsets, sizes, strides = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in names)
                parts = zip(offsets, self._sizes(sizes, list(op.operands)[1:]), strides, strict=True)
                index = tuple(slice(first, first + size * step, step) for first, size, step in parts)
                return self._values[op.operands[0]][index]
            case "linalg.fill":
                value, out = (self._values[v] for v in op.operands)
                return torch.full_like(out, value.item() if isinstance(value, Tensor) else value)
            case "linalg.generic":
                return self._generic(op)
        structured = handlers(__package__).get(op.name)
        if structured is not None:
            return structured(op, [self._values[v] for v in op.operands], self._widen)
        raise NotImplementedError(f"the oracle does not know {op.name} in a kernel")

    def _shape(self, value: ir.Value, sizes: Sequence[ir.Value]) -> list[int]:
        return self._sizes(list(ir.RankedTensorType(value.type).shape), sizes)

    def _sizes(self, static: Sequence[int], sizes: Sequence[ir.Value]) -> list[int]:
        """Return ``static`` with its dynamic sizes replaced by ``sizes``."""
        rest = iter(sizes)
        return [int(self._values[next(rest)]) if n == ir.ShapedType.get_dynamic_size() else n for n in static]

    def _dtype(self, value: ir.Value) -> torch.dtype:
        is_byte = str(ir.RankedTensorType(value.type).element_type) == "i8"
        return torch.int8 if is_byte else _read_dtype(value.type, self._widen)

    def _generic(self, op: ir.Operation) -> list[Tensor]:
        loops = GenericLoops(op)
        operands = [torch.as_tensor(self._values[v]) for v in op.operands]
        region = _Region(loops, loops.loop_sizes([t.shape for t in operands]), self._values, self._widen)
        for argument, tensor, map_ in zip(loops.block.arguments, operands, loops.maps, strict=True):
            region.values[argument] = _spread(tensor, map_, region.sizes)
        kept = [loop for loop, reduces in enumerate(loops.reduces) if not reduces]
        results = []
        for number, found in enumerate(region.run()):
            order = [kept.index(loop) for loop in loops.maps[loops.input_count + number]]
            dtype = self._dtype(op.results[number])
            results.append(found.expand([region.sizes[loop] for loop in kept]).permute(order).to(dtype))
        return results


def _spread(tensor: Tensor, map_: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Return ``tensor`` with a dim for each loop, of size 1 if ``map_`` does not use the loop."""
    order = sorted(range(len(map_)), key=map_.__getitem__)
    return tensor.permute(order).reshape([n if loop in map_ else 1 for loop, n in enumerate(sizes)])


class _Region:
    """Region of a ``linalg.generic``, evaluated for its whole iteration space: values have a dim per loop."""

    def __init__(self, loops: GenericLoops, sizes: Sequence[int], outer: Environment, widen: bool) -> None:
        self.values: Environment = {}
        self.sizes = sizes
        self._loops, self._outer, self._widen = loops, outer, widen
        self._reduced = [loop for loop, reduces in enumerate(loops.reduces) if reduces]

    def run(self) -> list[Tensor]:
        """Return a tensor for each result, with a dim for each loop that is no reduction."""
        joins = {v: self._loops.join(n) for n, v in enumerate(self._loops.yielded)} if self._reduced else {}
        contracted = [(v, join.term) for v, join in joins.items() if join is not None and self._factors(join)]
        never = [v for pair in contracted for v in pair]
        for op in self._loops.body_ops:
            if not any(value == op.results[0] for value in never):
                self.values[op.results[0]] = self._evaluated(op)
        results = [self._reduce(joins[v]) if self._reduced else self._value(v) for v in self._loops.yielded]
        return [torch.as_tensor(found).squeeze(tuple(self._reduced)) for found in results]

    def _value(self, value: ir.Value) -> Any:
        return self.values[value] if value in self.values else self._outer[value]

    def _evaluated(self, op: ir.Operation) -> Tensor:
        if op.name == "arith.constant":
            return attribute_value(op, self._widen)
        if (loop := loop_of(op.results[0])) is not None:
            size = self.sizes[loop]
            return torch.arange(size).reshape([size if d == loop else 1 for d in range(len(self.sizes))])
        operands = [self._value(v) for v in op.operands]
        if op.name == "tensor.extract":
            return operands[0][tuple(operands[1:])]
        if op.name not in EVALUATE:
            raise NotImplementedError(f"the oracle does not know {op.name} in a kernel")
        return EVALUATE[op.name](op, self._widen, *operands)

    def _reduce(self, join: Join | None) -> Tensor:
        """Reduce a term, and combine it with the initial value. Reduced dims get size 1."""
        if join is None or join.op.name not in REDUCE:
            raise NotImplementedError("the oracle knows reductions that end in one op of the accumulator")
        if factors := self._factors(join):
            total = _contract([self.values[v] for v in factors], self.sizes, self._reduced)
        else:
            term = torch.as_tensor(self._value(join.term)).expand(self.sizes)
            total = REDUCE[join.op.name](term, self._reduced)
        accumulator = next(v for v in join.op.operands if v != join.term)
        return EVALUATE[join.op.name](join.op, False, total, self.values[accumulator])

    def _factors(self, join: Join) -> list[ir.Value]:
        """Return the factors of a sum of products. Its terms are not materialised: a matmul has too many."""
        made = self._loops.made_here(join.term) if join.op.name == "arith.addf" else None
        if made is None or made.name != "arith.mulf":
            return []
        once = all(len(list(value.uses)) == 1 for value in (join.term, join.op.results[0]))
        here = (
            isinstance(v, ir.BlockArgument) or self._loops.made_here(v) is not None for v in made.operands
        )
        return list(made.operands) if once and all(here) else []


def _contract(factors: Sequence[Any], sizes: Sequence[int], reduced: list[int]) -> Tensor:
    """Return the sum of the factors' product over the dims ``reduced``, which are kept with size 1."""
    dims = list(range(len(sizes)))
    tensors = [t.reshape([1] * len(sizes)) if t.ndim == 0 else t for t in map(torch.as_tensor, factors)]
    shape = [max(t.shape[d] for t in tensors) for d in dims]
    total = torch.einsum(*(x for t in tensors for x in (t, dims)), [d for d in dims if d not in reduced])
    total = total * prod(sizes[d] for d in reduced if shape[d] == 1)
    return total.reshape([1 if d in reduced else n for d, n in enumerate(shape)])
