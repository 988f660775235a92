"""Search for linear layers with a cross entropy in a block, and reasons why others store their logits."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.passes.fuse.bodies.captures import captured
from shardc.passes.fuse.linear_loss import forms
from shardc.passes.fuse.linear_loss.calls import transposed
from shardc.passes.fuse.linear_loss.pattern import Match, Matcher
from shardc.passes.fuse.reading.values import is_read, maker, owner_of, readers, target_of, type_of
from shardc.passes.fuse.reading.view import VIEWS

LOSS_OPS = frozenset((forms.SOFTMAX, forms.LARGEST))
"""Every such loss contains one of these ops."""


@dataclass(frozen=True)
class LinearLoss:
    """Calls that a fused loss and its backward replace.

    ``first`` is the log_softmax or its first call, of number ``softmax``. ``values`` have the names of
    :mod:`shardc.passes.fuse.linear_loss.forms`, and ``weight`` is [classes, size]. ``forward`` and
    ``backward`` are the numbers of the calls, the product first. ``beside`` has steps that must not share a
    kernel with others.
    """

    values: Mapping[str, ir.Value]
    first: ir.Operation
    softmax: int
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    beside: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*self.forward, *self.backward)

    @property
    def logits(self) -> TensorType:
        return type_of(self.values["product"])

    @property
    def spared_bytes(self) -> int:
        """Return the bytes of the logits, in the product's dtype and in f32, that need not be stored."""
        return self.logits.size_bytes + (4 * self.logits.numel if self.logits.dtype != torch.float32 else 0)


@dataclass(frozen=True)
class Apart:
    """Product and softmax that cannot be fused, by the numbers of their steps, and the reason."""

    first: int
    second: int
    why: str
    logits: TensorType


class LogitsKept(Exception):
    """Reason why the logits of a linear layer are stored, in words."""


class LossFinder:
    """Search for losses among the ``steps`` of a block. With ``eager`` rounding, logits may be 16-bit."""

    def __init__(self, steps: Sequence[ir.Operation], rounding: str) -> None:
        self._steps, self._rounding, self._matcher = steps, rounding, Matcher(CallReader())
        self._numbers = {op.results[0]: number for number, op in enumerate(steps) if len(op.results)}

    def find(self, is_free: Callable[[int], bool]) -> Iterator[LinearLoss | Apart]:
        """Yield the losses and the failures. ``is_free`` returns whether a step may be in a kernel."""
        for op in self._steps:
            parts = _parts(op, self._matcher) if target_of(op) in LOSS_OPS else None
            if parts is None:
                continue
            try:
                found = self._loss(parts, op)
                if not all(map(is_free, found.numbers)):
                    raise LogitsKept("one of the calls must stay outside kernels")
                yield found
            except LogitsKept as why:
                product = parts.softmax.values["product"]
                yield Apart(self._numbers[product], self._numbers[op.results[0]], str(why), type_of(product))

    def _loss(self, parts: _Parts, softmax: ir.Operation) -> LinearLoss:
        values, ops, inside = parts.whole.values, parts.loss.ops, _inside(parts.whole)
        logp = values["logp"].owner.operation
        before = [op for op in parts.softmax.ops if op != logp]
        if _mask(softmax.operands[0]) is not None:
            raise LogitsKept("logits are masked, as when classes do not divide evenly over devices")
        _check_linear(values)
        self._check_logits(values, before)
        _check_readers(values, "the logits are kept", before, inside)
        between = [op for op in ops if op not in before]
        _check_readers(values, "the logarithms of all probabilities are kept", between, inside)
        if "picked" not in values:
            raise LogitsKept("the loss does not have one class per row")
        behind = [op for op in inside if op not in ops]
        _check_readers(values, "the gradient of the logits is kept", behind, inside)
        _check_gradient(values)
        beside = self._makers(values["index"]) if {"top", "total"} & values.keys() else []
        first = self._numbers[softmax.results[0]]
        return LinearLoss(values, softmax, first, *map(self._calls, (ops, behind, beside)))

    def _calls(self, ops: Iterable[ir.Operation]) -> tuple[int, ...]:
        return tuple(sorted(self._numbers[op.results[0]] for op in ops if target_of(op) not in VIEWS))

    def _check_logits(self, values: Mapping[str, ir.Value], ops: Iterable[ir.Operation]) -> None:
        """Raise LogitsKept unless all ``ops`` make logits or numbers of rows, which a kernel has in f32."""
        rows, classes = type_of(values["rows"]), type_of(values["product"]).shape[-1]
        if not rows.is_static or classes is None:
            raise LogitsKept("sizes are known only at run time")
        for type_ in (type_of(op.results[0]) for op in ops):
            if type_.shape[-1] not in (classes, 1):
                raise LogitsKept("a reshape between the calls does not keep rows")
            if type_.dtype not in FLOATS or (self._rounding == "eager" and type_.dtype != torch.float32):
                what = "logits are rounded to" if type_.dtype.itemsize < 4 else "the softmax is in"
                raise LogitsKept(f"{what} {type_.dtype}")

    def _makers(self, index: ir.Value) -> list[ir.Operation]:
        """Return the calls that compute the rows' classes from labels.

        They must not share a kernel with readers of the loss's other results. Otherwise the loss's kernel and
        that kernel would wait for each other.
        """
        found: dict[ir.Operation, None] = {}
        waiting = [index]
        while waiting:
            value = waiting.pop()
            op, type_ = owner_of(value), read_type(value.type)
            if op is None or op in found:
                continue
            if type_ is not None and type_.dtype.is_floating_point:
                raise LogitsKept("the classes of rows are computed from floating-point numbers")
            found[op] = None
            waiting += op.operands
        return [op for op in found if op.results[0] in self._numbers and maker(op.results[0])]


def loss_values(softmax: ir.Operation) -> Mapping[str, ir.Value]:
    """Match a loss again and return its current values; other rewrites may have replaced some since."""
    parts = _parts(softmax, Matcher(CallReader()))
    assert parts is not None
    return parts.whole.values


@dataclass(frozen=True)
class _Parts:
    """Matches of a loss: a linear layer with a log_softmax, then with the loss, then with its gradient."""

    softmax: Match
    loss: Match
    whole: Match


def _parts(op: ir.Operation, matcher: Matcher) -> _Parts | None:
    """Return the matches that contain ``op``, a softmax or the first call of one."""
    mask = _mask(op.operands[0])
    logits = op.operands[0] if mask is None else mask.operands[1]
    linear = next(matcher.match(forms.LOGITS, logits, Match({})), None)
    if linear is None:
        return None
    given = linear.named(weight=transposed(linear.values["turned"]), logits=op.operands[0])
    played = (_played(roles, matcher, given) for roles in forms.SOFTMAXES)
    softmax = next((found for found in played if "logp" in found.values), None)
    if softmax is None:
        return None
    loss = _played(forms.LOSS, matcher, softmax)
    return _Parts(softmax, loss, _played(forms.BACKWARD, matcher, loss))


def _played(roles: Iterable[forms.Role], matcher: Matcher, match: Match) -> Match:
    """Return the match with the values of ``roles`` bound; a role that several values match stays unbound."""
    for role in roles:
        if role.source in match.values:
            found = matcher.made_of(role.name, role.pattern, role.source, match)
            match = found[0] if len(found) == 1 else match
    return match


def _inside(match: Match) -> dict[ir.Operation, None]:
    """Return the calls of a match, except zeros with other readers."""
    ops = dict.fromkeys(match.ops)
    if "zeros" in match.values:
        zeros = captured(match.values["zeros"]).owner.operation
        if zeros.results[0] != match.values["zeros"] or not ops.keys() >= set(readers(zeros.results[0])):
            del ops[zeros]
    return ops


def _check_readers(
    values: Mapping[str, ir.Value], kept: str, ops: Iterable[ir.Operation], inside: Container[ir.Operation]
) -> None:
    """Raise LogitsKept if an op that is not ``inside`` reads a result of ``ops`` that the fused op lacks."""
    made = [values[name] for name in forms.MADE if name in values]
    known = [op.results[0] for op in ops if op.results[0] not in made]
    outside = [op for value in known for op in readers(value) if op not in inside]
    others = [target_of(op) for op in outside if not len(op.results) or any(map(is_read, op.results))]
    if others:  # gradients and zeros follow from the others
        other = min(others, key=(forms.GRADIENT, "aten.zeros_like").__contains__)
        by = "the program returns them" if other == "func.return" else f"{other} reads them"
        raise LogitsKept(f"{kept}: {by}")


def _check_linear(values: Mapping[str, ir.Value]) -> None:
    """Raise LogitsKept unless the operands of the product are those of a linear layer."""
    product, weight = type_of(values["product"]), values.get("weight")
    shape = (product.shape[-1], type_of(values["rows"]).shape[-1])
    if weight is None or type_of(weight).shape != shape:
        raise LogitsKept("the weight is not [classes, size]")
    if "bias" in values and type_of(values["bias"]) != (shape[:1], product.dtype):
        raise LogitsKept("the tensor added to the logits is not a bias")


def _check_gradient(values: Mapping[str, ir.Value]) -> None:
    is_other = "again" in values and type_of(values["again"]) != type_of(values["weight"])
    if is_other or ("slopes" in values and not {"drows", "dweight"} & values.keys()):
        raise LogitsKept("the gradient of the logits is not that of a linear layer")
    if "dbias" in values and "bias" not in values:
        raise LogitsKept("the gradient of the logits is kept: its sum is not the gradient of a bias")


def _mask(value: ir.Value) -> ir.Operation | None:
    """Return the op that masks logits as ``dist-pad`` does; None if they are not masked."""
    op = maker(value)
    return op if op is not None and target_of(op) == "aten.where.ScalarOther" else None
