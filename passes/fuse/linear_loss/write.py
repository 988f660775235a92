"""Replacement of a loss's calls by ``shardc.linear_cross_entropy``, its backward, and calls on rows' numbers.

With sharded classes, devices combine their own ``top`` and ``sum`` to ``tops`` and ``log``. With the device's
own lse, logp and total, and ``s = lse - tops - log``: ``sum(exp(x - tops)) = exp(lse - tops)``, a row has
``logp + s`` at its class, and its sum over the device's classes is ``total + classes s``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import CallReader, replace_leaves, target_name
from shardc.passes.fuse.linear_loss.calls import first_of, made_behind
from shardc.passes.fuse.linear_loss.find import loss_values
from shardc.passes.fuse.reading.values import maker, type_of
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.partition.local_call import infer_types, with_defaults

FORWARD = "shardc.linear_cross_entropy"
BACKWARD = f"{FORWARD}_backward"
GRADIENTS = ("drows", "dweight", "dbias")


@dataclass
class Raised:
    """Ops that replace a loss, and the values that they replace. The replaced calls stay, unread."""

    forward: ir.Operation
    backward: ir.Operation | None = None
    taken: dict[ir.Value, ir.Value] = field(default_factory=dict)


def raise_loss(softmax: ir.Operation, builder: CallBuilder) -> Raised | None:
    """Write both ops for the loss of ``softmax``; None if its gradient's reader gathers the weight again."""
    writer = _Writer(loss_values(softmax), builder)
    products = writer.makers(*GRADIENTS)
    if writer.waits_for_itself(products):
        return None
    raised = writer.forward()
    if products:
        writer.backward(raised, products)
    return raised


class _Writer:
    """Writes the ops of one loss."""

    def __init__(self, values: Mapping[str, ir.Value], builder: CallBuilder) -> None:
        self._values, self._builder, self._reader = values, builder, CallReader()
        self._rows, self._classes = type_of(values["logp"]).shape
        self._taken: dict[ir.Value, ir.Value] = {}

    def makers(self, *names: str) -> list[ir.Operation]:
        return [self._values[name].owner.operation for name in names if name in self._values]

    def waits_for_itself(self, products: list[ir.Operation]) -> bool:
        """Return whether the weight of a product depends on another product."""
        if "drows" not in self._values:
            return False
        return not set(products).isdisjoint(made_behind(self._values["again"], first_of(products)))

    def forward(self) -> Raised:
        values = self._values
        place = first_of(self.makers("top") or self.makers("picked", "total"))
        for op in made_behind(values["index"], place):
            assert op != place, "the class of a row depends on its own softmax"
            op.move_before(place)
        at = self._at(place)
        index = at.flat(values["index"], self._rows)
        op = at.op(FORWARD, values["rows"], values["weight"], index, values.get("bias"))
        self._show(dict(zip(("logp", "lse", "total", "top"), op.results, strict=True)))
        return Raised(op, taken=self._taken)

    def _show(self, made: dict[str, ir.Value]) -> None:
        """Replace the calls' results by the op's results."""
        values, rows = self._values, (self._rows,)
        if "top" in values:
            self._before("top").take("top", made["top"])
            at = self._before("shifted")
            less = at("aten.sub.Tensor", at.column(made["lse"]), values["tops"])
            at.take("sum", at("aten.exp", less))
            at = self._before("logp")
            shift = at("aten.view", at("aten.sub.Tensor", less, values["log"]), rows)
            made["logp"] = at("aten.add.Tensor", made["logp"], shift)
            made["lse"] = at("aten.view", at("aten.add.Tensor", values["tops"], values["log"]), rows)
            if "total" in values:
                made["total"] = at("aten.add.Tensor", made["total"], shift, self._classes)
        self._lse, at = made["lse"], self._before("picked")
        if "weighted" in values:
            weights = self._at_class(values["class_weights"], values["index"], at)
            made["logp"] = at("aten.mul.Tensor", at.column(made["logp"]), weights)
        at.take("picked", made["logp"])
        if "total" in values:
            self._before("total").take("total", made["total"])

    def backward(self, raised: Raised, products: list[ir.Operation]) -> None:
        values, rows, first = self._values, self._rows, first_of(products)
        again = values.get("again", values["weight"])
        for op in made_behind(again, first):
            op.move_before(first)
        grad, scale = self._grad()
        at = self._at(first)
        spread = at.flat(values["spread"], rows) if "spread" in values else None
        sums = at.flat(values["sums"], rows) if "sums" in values else None
        index, again = at.flat(values["hit"], rows), None if again == values["weight"] else again
        given = (at.flat(grad, rows), values["rows"], values["weight"], index, self._lse, again)
        raised.backward = at.op(BACKWARD, *given, values.get("bias"), spread, sums, scale)
        for role, value in zip(GRADIENTS, raised.backward.results, strict=True):
            if role in values:
                at.take(role, value)

    def _grad(self) -> tuple[ir.Value, float]:
        """Return the gradient at each row's class, and its scale; replace sums of it over all classes."""
        values, at = self._values, self._before("scaled")
        grad, scale = self._at_class(values["share"], values["hit"], at), 1.0
        if "kept" in values:
            kept, before = type_of(values["kept"]), self._before("kept")
            before.take("kept", before("aten.full", kept.shape, 0, kept.dtype))
        if "source" in values:
            grad = at("aten.mul.Tensor", values["source"], grad)
        else:
            scale = float(self._reader.read(*self.makers("scatter")).spec["value"])
        if "added" in values:
            at = self._before("added")
            whole = grad if scale == 1.0 else at("aten.mul.Scalar", grad, scale)
            if "spread" in values:
                whole = at("aten.add.Tensor", whole, values["spread"], self._classes)
            at.take("added", whole)
        return grad, scale

    def _at_class(self, value: ir.Value, index: ir.Value, at: _Calls) -> ir.Value:
        """Return ``value``, a number for each row, class or both, at the class of each row."""
        type_ = type_of(value)
        if type_.shape[-1:] in ((), (1,)):
            return value
        op = maker(value)
        if type_.shape == (1, type_.numel):
            flat = at("aten.view", value, (type_.numel,))
            return at.column(at("aten.index_select", flat, 0, at("aten.view", index, (self._rows,))))
        assert op is not None
        operands = list(op.operands)
        first = 1 if target_name(op) == "aten.where.self" else 0
        sides = [self._at_class(side, index, at) for side in operands[first:]]
        return at(target_name(op), *operands[:first], *sides)

    def _before(self, name: str) -> _Calls:
        """Return a writer in front of the call that computes the value ``name``."""
        return self._at(*self.makers(name))

    def _at(self, op: ir.Operation) -> _Calls:
        return _Calls(self._builder, self._values, self._taken, op)


class _Calls:
    """Writer of calls in front of an op, with its location and phase."""

    def __init__(
        self,
        builder: CallBuilder,
        values: Mapping[str, ir.Value],
        taken: dict[ir.Value, ir.Value],
        op: ir.Operation,
    ) -> None:
        self._builder, self._values, self._taken = builder, values, taken
        self._loc, self._ip = op.location, ir.InsertionPoint(op)
        self._phase = attributes_of(op, "dist.phase")

    def op(self, target: str, *args: object) -> ir.Operation:
        full = with_defaults(target, args)
        typed = replace_leaves(full, lambda a: type_of(a) if isinstance(a, ir.Value) else a)
        types = infer_types(target, typed)
        return self._builder.call(target, full, types, self._loc, self._ip, self._phase)

    def __call__(self, target: str, *args: object) -> ir.Value:
        return self.op(target, *args).results[0]

    def column(self, value: ir.Value) -> ir.Value:
        """Reshape one number per row from [count] to [count, 1]."""
        return self("aten.view", value, (*type_of(value).shape, 1))

    def flat(self, value: ir.Value, count: int) -> ir.Value:
        """Return numbers of rows, [count, 1] or one for all, as [count]; floats are converted to f32."""
        if type_of(value).numel != count:
            value = self("aten.expand", value, (count, 1))
        return self._cast(self("aten.view", value, (count,)), torch.float32)

    def take(self, name: str, value: ir.Value) -> None:
        """Replace the loss's value ``name`` by ``value`` in all readers."""
        old = self._values[name]
        value = self._cast(value, type_of(old).dtype)
        if type_of(old).shape != type_of(value).shape:
            value = self("aten.view", value, type_of(old).shape)
        old.replace_all_uses_with(value)
        self._taken[old] = value

    def _cast(self, value: ir.Value, dtype: torch.dtype) -> ir.Value:
        given = type_of(value).dtype
        if given == dtype or not given.is_floating_point:
            return value
        return self("aten._to_copy", value, dtype)
