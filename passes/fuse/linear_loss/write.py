"""Writes the two kernels of a linear layer with its cross entropy, and calls on numbers of rows around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import CallReader, replace_leaves, target_name
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.kernel import CHECKS, kernel, write_checks
from shardc.dialects.kern.linear_cross_entropy import MADE, linear_cross_entropy
from shardc.dialects.kern.linear_cross_entropy_backward import linear_cross_entropy_backward
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.linear_loss.calls import first_of, made_behind, maker, type_of
from shardc.passes.fuse.linear_loss.loss import Gradient, LinearLoss
from shardc.passes.partition.local_call import infer_types, with_defaults


@dataclass(frozen=True)
class Written:
    """A kernel, the steps that it stands for, and its ``values`` with those whose places they take; its last result is
    shown as ``bias``, if there is one.
    """

    op: ir.Operation
    numbers: tuple[int, ...]
    values: list[ir.Value]
    olds: list[ir.Value]
    bias: ir.Value | None = None


class LossKernels:
    """Writes kernels into a block. The calls that they stand for stay, and nobody reads them."""

    def __init__(self, block: ir.Block) -> None:
        self._reader, self._builder, self._context = CallReader(), CallBuilder(block), block.owner.context

    def write(self, loss: LinearLoss, names: Iterator[str]) -> Iterator[Written]:
        """Both kernels; none where the weight is gathered again by what waits for its gradient."""
        gradient = loss.gradient
        if gradient is not None and gradient.rows is not None:
            behind = made_behind(gradient.rows.operands[1], first_of(gradient.made))
            if not set(gradient.made).isdisjoint(behind):
                return
        op, made = self._write_forward(loss, next(names))
        yield Written(op, loss.forward, [], [])
        if gradient is not None:
            yield self._write_backward(loss, gradient, made["lse"], next(names))

    def _write_forward(self, loss: LinearLoss, name: str) -> tuple[ir.Operation, dict[str, ir.Value]]:
        """The kernel, with its results by name; ``lse`` is that of the whole softmax."""
        softmax, pick = loss.softmax, loss.pick
        index = self._reader.read(pick).operands[1]
        place = first_of(
            [op for op in (softmax.first if softmax.parts else pick, loss.total) if op is not None]
        )
        for op in made_behind(index, place):
            assert op != place, "the class of a row waits for its own softmax"
            op.move_before(place)
        count = loss.logits.numel // loss.classes
        at = _Calls(self._builder, place)
        given = [loss.rows, loss.weight, at.flat(index, count), *([] if loss.bias is None else [loss.bias])]
        row, number = TensorType((count,), torch.float32), TensorType((), torch.int64)
        wanted = {"total": loss.total is not None, "top": softmax.parts is not None}
        types = {role: number if role == "wrong" else row for role in MADE if wanted.get(role, True)}
        body, values, op = self._kernel(name, given, list(types.values()), at)
        end = ir.InsertionPoint(body)
        found = dict(zip(MADE, linear_cross_entropy(list(body.arguments), loc=at.loc, ip=end), strict=True))
        yield_values([found[role] for role in types], loc=at.loc, ip=end)
        message = f"index {{}} is out of bounds for dimension 1 with size {loss.classes}"
        op.attributes[CHECKS] = write_checks({list(types).index("wrong"): message}, self._context)
        made = dict(zip(types, values, strict=True))
        self._show(loss, made)
        return op, made

    def _show(self, loss: LinearLoss, made: dict[str, ir.Value]) -> None:
        """Puts what the kernel made in the places of what calls made."""
        softmax, parts, pick, total = loss.softmax, loss.softmax.parts, loss.pick, loss.total
        if parts is not None:
            _Calls(self._builder, parts.top).take(parts.top, made["top"])
            at = _Calls(self._builder, parts.shifted)
            less = at("aten.sub.Tensor", at.column(made["lse"]), parts.shifted.operands[1])
            at.take(parts.total, at("aten.exp", less))
            at = _Calls(self._builder, softmax.last)
            log = softmax.last.operands[1]
            shift = at("aten.view", at("aten.sub.Tensor", less, log), type_of(made["lse"]).shape)
            made["logp"] = at("aten.add.Tensor", made["logp"], shift)
            if total is not None:
                made["total"] = at("aten.add.Tensor", made["total"], shift, loss.classes)
            whole = at("aten.add.Tensor", parts.shifted.operands[1], log)
            made["lse"] = at("aten.view", whole, type_of(made["lse"]).shape)
        picked, at = made["logp"], _Calls(self._builder, pick)
        if loss.weighted is not None:
            weights = self._at_class(loss.weighted.operands[1], self._reader.read(pick).operands[1], at)
            picked = at("aten.mul.Tensor", at.column(picked), weights)
        at.take(pick, picked)
        if total is not None:
            _Calls(self._builder, total).take(total, made["total"])

    def _write_backward(self, loss: LinearLoss, gradient: Gradient, lse: ir.Value, name: str) -> Written:
        first = first_of(gradient.made)
        again = loss.weight if gradient.rows is None else gradient.rows.operands[1]
        for op in made_behind(again, first):
            op.move_before(first)
        at, count = _Calls(self._builder, first), type_of(lse).shape[0]
        grad, scale = self._grad(gradient, loss.classes)
        index = self._reader.read(gradient.scatter).operands[1]
        given = {"grad": at.flat(grad, count), "rows": loss.rows, "weight": loss.weight}
        given |= {"index": at.flat(index, count), "lse": lse}
        if again != loss.weight:
            given["weight_again"] = again
        if loss.bias is not None:
            given["bias"] = loss.bias
        if gradient.spread is not None:
            given["spread"] = at.flat(gradient.spread.operands[0], count)
        if gradient.fall is not None and gradient.probabilities is not None:
            share = gradient.probabilities.results[0]
            (sums,) = (value for value in list(gradient.fall.operands)[:2] if value != share)
            given["sums"] = at.flat(sums, count)
        biases = [] if gradient.bias is None else [gradient.bias.results[0]]
        olds = [op.results[0] for op in gradient.products]
        types = [*map(type_of, olds), *(TensorType((loss.classes,), type_of(old).dtype) for old in biases)]
        body, values, op = self._kernel(name, list(given.values()), types, at)
        end = ir.InsertionPoint(body)
        inner = dict(zip(given, body.arguments, strict=True))
        made = linear_cross_entropy_backward(inner, scale, loc=at.loc, ip=end)
        made = zip(made, (gradient.rows, gradient.weight, gradient.bias), strict=True)
        yield_values([value for value, old in made if old is not None], loc=at.loc, ip=end)
        for old, new in zip((*gradient.products, gradient.bias), values, strict=False):
            at.take(old, new)
        return Written(op, loss.backward, values[: len(olds)], olds, *biases)

    def _grad(self, gradient: Gradient, classes: int) -> tuple[ir.Value, float]:
        """The gradient at the class of each row, without its scale; puts the sums over all classes in their place."""
        scatter, spec = gradient.scatter, self._reader.read(gradient.scatter).spec
        index, at = self._reader.read(scatter).operands[1], _Calls(self._builder, gradient.scaled)
        grad, scale = self._at_class(gradient.scaled.operands[gradient.side], index, at), 1.0
        if gradient.kept is not None:
            kept = type_of(gradient.kept.results[0])
            before = _Calls(self._builder, gradient.kept)
            before.take(gradient.kept, before("aten.full", kept.shape, 0, kept.dtype))
        if target_name(scatter) == "aten.scatter.src":
            grad = at("aten.mul.Tensor", self._reader.read(scatter).operands[2], grad)
        else:
            scale = float(spec["value"])
        if gradient.sums is not None:
            at = _Calls(self._builder, gradient.sums)
            whole = grad if scale == 1.0 else at("aten.mul.Scalar", grad, scale)
            if gradient.spread is not None:
                whole = at("aten.add.Tensor", whole, gradient.spread.operands[0], classes)
            at.take(gradient.sums, whole)
        return grad, scale

    def _at_class(self, value: ir.Value, index: ir.Value, at: _Calls) -> ir.Value:
        """What is of each row and class, or the same for all of the one or the other, at the class of each row."""
        type_, (rows, _) = type_of(value), type_of(index).shape
        if type_.shape[-1:] in ((), (1,)):
            return value
        op = maker(value)
        if type_.shape == (1, type_.numel):
            flat = at("aten.view", value, (type_.numel,))
            return at.column(at("aten.index_select", flat, 0, at("aten.view", index, (rows,))))
        assert op is not None
        operands = list(op.operands)
        first = 1 if target_name(op) == "aten.where.self" else 0
        sides = [self._at_class(side, index, at) for side in operands[first:]]
        return at(target_name(op), *operands[:first], *sides)

    def _kernel(
        self, name: str, given: Sequence[ir.Value], made: Sequence[TensorType], at: _Calls
    ) -> tuple[ir.Block, list[ir.Value], ir.Operation]:
        arguments = [builtin_type(type_of(value), self._context) for value in given]
        return kernel(name, given, arguments, made, loc=at.loc, ip=at.ip)


class _Calls:
    """Writes calls in front of an op, with its location and phase."""

    def __init__(self, builder: CallBuilder, op: ir.Operation) -> None:
        self._builder = builder
        self.loc, self.ip = op.location, ir.InsertionPoint(op)
        self._phase = {name: op.attributes[name] for name in ("dist.phase",) if name in op.attributes}

    def __call__(self, target: str, *args: Any) -> ir.Value:
        full = with_defaults(target, args)
        types = infer_types(
            target, replace_leaves(full, lambda a: type_of(a) if isinstance(a, ir.Value) else a)
        )
        return self._builder.call(target, full, types, self.loc, self.ip, self._phase).results[0]

    def column(self, value: ir.Value) -> ir.Value:
        """One number a row, [count], as [count, 1]."""
        return self("aten.view", value, (*type_of(value).shape, 1))

    def flat(self, value: ir.Value, count: int) -> ir.Value:
        """One number a row, [count, 1] or the same for all, as [count]."""
        if type_of(value).numel != count:
            value = self("aten.expand", value, (count, 1))
        return self("aten.view", value, (count,))

    def take(self, op: ir.Operation | None, value: ir.Value) -> None:
        """Gives ``value`` to all who read the result of ``op``."""
        if op is None:
            return
        (old,) = op.results
        if type_of(old).shape != type_of(value).shape:
            value = self("aten.view", value, type_of(old).shape)
        old.replace_all_uses_with(value)
