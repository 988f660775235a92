"""Linear layers with a cross entropy behind them as kernels of their own, forward and backward, which hold no logits.

What is looked for is ``gather(_log_softmax(mm(rows, weight^T)), index)``, with views and conversions between, and of
the gradient ``_log_softmax_backward_data`` of what is not 0 at one class a row alone, with the two products behind it:
what a step is traced to. Where others read the logits too, they stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import CallReader, IntValue, leaves, target_name
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.dialects.kern.kernel import CHECKS, kernel, write_checks
from shardc.dialects.kern.linear_cross_entropy import linear_cross_entropy
from shardc.dialects.kern.linear_cross_entropy_backward import linear_cross_entropy_backward
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.captures import captured, inside
from shardc.passes.fuse.read import VIEWS

SOFTMAX, GRADIENT = "aten._log_softmax", "aten._log_softmax_backward_data"
PRODUCT = "aten.mm"
_LINKS = frozenset(("aten.view", "aten._unsafe_view", "aten.reshape", "aten._to_copy", "aten.clone"))
_TURNS = frozenset(("aten.t", "aten.transpose.int", "aten.permute"))


class _Apart(Exception):
    """Why the logits of a linear layer are made, in words."""


@dataclass(frozen=True)
class _Backward:
    """Gradients from ``scale * grad``, a number a row. ``scaled`` puts that, its operand ``side``, where ``scatter``
    has the class of each row. ``rows`` and ``weight``: the products that make them, ``bias``: the sum over rows that
    does; None for what needs none; ``ops`` are all calls.
    """

    scaled: ir.Operation
    side: int
    scatter: ir.Operation
    scale: float
    rows: ir.Operation | None
    weight: ir.Operation | None
    bias: ir.Operation | None
    ops: tuple[ir.Operation, ...]

    @property
    def products(self) -> list[ir.Operation]:
        return [op for op in (self.rows, self.weight) if op is not None]

    @property
    def made(self) -> list[ir.Operation]:
        """All calls whose results others read."""
        return [*self.products, *([] if self.bias is None else [self.bias])]


@dataclass(frozen=True)
class LinearLoss:
    """The calls that two kernels stand for; ``forward`` and ``backward`` are their steps, the product first.

    Fusion gives calls that stay other operands: what they read is asked for when it is needed.
    """

    product: ir.Operation
    gather: ir.Operation
    gradient: _Backward | None
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    logits: TensorType

    @property
    def rows(self) -> ir.Value:
        return _factors(self.product)[0]

    @property
    def bias(self) -> ir.Value | None:
        return None if target_name(self.product) == PRODUCT else self.product.operands[0]

    @property
    def weight(self) -> ir.Value:
        weight = _turned(self.product)
        assert weight is not None
        return weight

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*self.forward, *self.backward)

    @property
    def classes(self) -> int:
        return self.logits.shape[-1]

    @property
    def spared_bytes(self) -> int:
        """Of the logits, as they are multiplied and in f32, which are held from forward to backward."""
        return self.logits.size_bytes + (4 * self.logits.numel if self.logits.dtype != torch.float32 else 0)


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


@dataclass(frozen=True)
class Apart:
    """A product and a softmax, by the numbers of their steps, which are no such kernel, and why not."""

    first: int
    second: int
    why: str
    logits: TensorType


class LinearLosses:
    """Turns calls of a block into kernels."""

    def __init__(self, block: ir.Block) -> None:
        self._reader, self._builder, self._context = CallReader(), CallBuilder(block), block.owner.context

    def find(
        self, steps: Sequence[ir.Operation], is_free: Callable[[int], bool], numerics: str
    ) -> Iterator[LinearLoss | Apart]:
        """``is_free`` says of a step whether it may be in a kernel. With ``eager`` numerics logits of 16 bits are
        rounded, and so made.
        """
        self._numbers = {op.results[0]: number for number, op in enumerate(steps) if len(op.results)}
        for op in steps:
            target = target_name(op) if op.name.startswith("torch.") else ""
            if target == "aten.amax":
                yield from self._cut(op)
            if target != SOFTMAX or any(isinstance(leaf, IntValue) for leaf in leaves(self._reader.read(op).spec.args)):
                continue
            product = self._product(op)
            if product is None:
                continue
            try:
                found = self._loss(op, product, numerics)
                if not all(map(is_free, found.numbers)):
                    raise _Apart("one of their calls has to stay as it is")
                yield found
            except _Apart as why:
                yield Apart(self._number(product), self._number(op), str(why), self._type(product.results[0]))

    def write(self, loss: LinearLoss, names: Iterator[str]) -> Iterator[Written]:
        """The kernels. The calls stay, and nobody reads them.

        None where the weight is gathered again by what waits for its gradient.
        """
        if loss.gradient is not None and loss.gradient.rows is not None:
            first = min(loss.gradient.made, key=_place)
            if any(op in loss.gradient.made for op in _behind(loss.gradient.rows.operands[1], first)):
                return
        gather = loss.gather
        ip, loc = ir.InsertionPoint(gather), gather.location
        count = self._type(loss.rows).shape[0]
        index = self._flat(self._reader.read(gather).operands[1], count, loc, ip)
        row, number = TensorType((count,), torch.float32), TensorType((), torch.int64)
        given = [loss.rows, loss.weight, index, *([] if loss.bias is None else [loss.bias])]
        body, values, op = self._kernel(next(names), given, [row, row, number], loc, ip)
        end = ir.InsertionPoint(body)
        yield_values(linear_cross_entropy(list(body.arguments), loc=loc, ip=end)[:3], loc=loc, ip=end)
        message = f"index {{}} is out of bounds for dimension 1 with size {loss.logits.shape[-1]}"
        op.attributes[CHECKS] = write_checks({2: message}, self._context)
        old = gather.results[0]
        shape = list(self._type(old).shape)
        view = self._builder.call("aten.view", (values[0], shape), [self._type(old)], loc, ip)
        old.replace_all_uses_with(view.results[0])
        yield Written(op, loss.forward, [], [])
        if loss.gradient is not None:
            yield self._write_gradient(loss, loss.gradient, values[1], next(names))

    def _write_gradient(self, loss: LinearLoss, gradient: _Backward, lse: ir.Value, name: str) -> Written:
        first = min(gradient.made, key=_place)
        ip, loc = ir.InsertionPoint(first), first.location
        count = self._type(loss.rows).shape[0]
        again = loss.weight if gradient.rows is None else gradient.rows.operands[1]
        for op in _behind(again, first):
            op.move_before(first)
        grad, index = gradient.scaled.operands[gradient.side], self._reader.read(gradient.scatter).operands[1]
        grad, index = (self._flat(value, count, loc, ip) for value in (grad, index))
        given = {"grad": grad, "rows": loss.rows, "weight": loss.weight, "index": index, "lse": lse}
        if again != loss.weight:
            given["weight_again"] = again
        if loss.bias is not None:
            given["bias"] = loss.bias
        olds, biases = [op.results[0] for op in gradient.products], [] if gradient.bias is None else [gradient.bias.results[0]]
        types = [*map(self._type, olds), *(TensorType((loss.classes,), self._type(old).dtype) for old in biases)]
        body, values, op = self._kernel(name, list(given.values()), types, loc, ip)
        end = ir.InsertionPoint(body)
        inner = dict(zip(given, body.arguments, strict=True))
        made = linear_cross_entropy_backward(inner, gradient.scale, loc=loc, ip=end)
        made = zip(made, (gradient.rows, gradient.weight, gradient.bias), strict=True)
        wanted = [value for value, old in made if old is not None]
        yield_values(wanted, loc=loc, ip=end)
        for old, new in zip(olds, values, strict=False):
            old.replace_all_uses_with(new)
        for old in biases:
            view = self._builder.call("aten.view", (values[-1], list(self._type(old).shape)), [self._type(old)], loc, ip)
            old.replace_all_uses_with(view.results[0])
        return Written(op, loss.backward, values[: len(olds)], olds, *biases)

    def _kernel(
        self, name: str, given: Sequence[ir.Value], made: Sequence[TensorType], loc: ir.Location, ip: ir.InsertionPoint
    ) -> tuple[ir.Block, list[ir.Value], ir.Operation]:
        arguments = [builtin_type(self._type(value), self._context) for value in given]
        return kernel(name, given, arguments, made, loc=loc, ip=ip)

    def _flat(self, value: ir.Value, count: int, loc: ir.Location, ip: ir.InsertionPoint) -> ir.Value:
        """One of a number a row, [count, 1] or the same for all, as [count]."""
        type_ = self._type(value)
        if type_.numel != count:
            spread = type_.with_shape((count, 1))
            value = self._builder.call("aten.expand", (value, [count, 1], False), [spread], loc, ip).results[0]
        return self._builder.call("aten.view", (value, [count]), [type_.with_shape((count,))], loc, ip).results[0]

    # What calls say

    def _product(self, softmax: ir.Operation) -> ir.Operation | None:
        """The product whose logits an op reads, behind views and conversions; None if there is none."""
        value = softmax.operands[0]
        while (op := _maker(value)) is not None and target_name(op) in _LINKS:
            value = op.operands[0]
        return op if op is not None and target_name(op) in (PRODUCT, "aten.addmm") else None

    def _cut(self, op: ir.Operation) -> Iterator[Apart]:
        """Where a softmax of logits is computed on several devices, each with a part of the classes."""
        product = self._product(op)
        readers = [use.owner for use in op.results[0].uses]
        if product is not None and any(reader.name == "dist.all_reduce" for reader in readers):
            why = "each device has the logits of a part of the classes"
            yield Apart(self._number(product), self._number(op), why, self._type(product.results[0]))

    def _loss(self, softmax: ir.Operation, product: ir.Operation, numerics: str) -> LinearLoss:
        spec, logits = self._reader.read(softmax).spec, self._type(product.results[0])
        (made,) = spec.results
        if target_name(product) != PRODUCT and not self._is_bias(product):
            raise _Apart("what is added to the logits is no bias")
        if made is None or len(made.shape) != 2 or spec["dim"] % 2 != 1 or made.dtype != torch.float32:
            raise _Apart("the softmax is not of rows, in f32")
        if logits.dtype not in FLOATS or (numerics == "eager" and logits.dtype != torch.float32):
            raise _Apart(f"logits are rounded to {logits.dtype}")
        forward = self._chain(softmax, product)
        rows, weight = _factors(product)[0], _turned(product)
        if weight is None:
            raise _Apart("the weight is not [classes, size]")
        if not self._type(rows).is_static or not self._type(weight).is_static:
            raise _Apart("sizes are known at run time only")
        gather, gradient = self._readers(softmax)
        backward = None if gradient is None else self._gradient(gradient, rows, weight, target_name(product) != PRODUCT)
        numbers = [self._number(op) for op in (*forward, gather)]
        behind = [self._number(op) for op in backward.ops] if backward else []
        return LinearLoss(product, gather, backward, tuple(numbers), tuple(behind), logits)

    def _chain(self, softmax: ir.Operation, product: ir.Operation) -> list[ir.Operation]:
        """The calls from the product to the softmax, of which no other reads what is between."""
        reader, found, classes = softmax, [softmax], self._type(product.results[0]).shape[-1]
        while reader != product:
            value = reader.operands[0]
            self._check_reader(value, reader)
            type_ = self._type(value)
            if type_.shape[-1] != classes or type_.dtype not in FLOATS:
                raise _Apart("what lies between them is no view of rows")
            reader = _maker(value)
            assert reader is not None
            if not _is_view(reader):
                found.append(reader)
        return list(reversed(found))

    def _check_reader(self, value: ir.Value, reader: ir.Operation) -> None:
        for use in value.uses:
            if use.owner != reader:
                name = use.owner.name.removeprefix("torch.")
                says = "the program gives them to its caller" if name == "func.return" else f"{name} reads them, too"
                raise _Apart(f"the logits are kept: {says}")

    def _readers(self, softmax: ir.Operation) -> tuple[ir.Operation, ir.Operation | None]:
        gathers, gradients = [], []
        for use in softmax.results[0].uses:
            op = use.owner.operation
            target = target_name(op) if op.name.startswith("torch.") else op.name
            if target == "aten.gather" and self._is_of_rows(op):
                gathers.append(op)
            elif target == GRADIENT and op.operands[0] != softmax.results[0]:
                gradients.append(op)
            else:
                raise _Apart(f"{target} reads the logarithms of all probabilities")
        if len(gathers) != 1 or len(gradients) > 1:
            raise _Apart("the loss is not of one class a row")
        return gathers[0], gradients[0] if gradients else None

    def _is_of_rows(self, op: ir.Operation) -> bool:
        """Whether a gather or scatter is of one class for each row."""
        spec = self._reader.read(op).spec
        rows = spec["self"].shape[0]
        index = spec["index"]
        sparse = op.name.endswith("gather") and spec["sparse_grad"]
        return spec["dim"] % 2 == 1 and index.shape == (rows, 1) and not sparse and index.dtype == torch.int64

    def _is_bias(self, product: ir.Operation) -> bool:
        spec = self._reader.read(product).spec
        bias, weight = spec["self"], spec["mat2"]
        return bias.shape == weight.shape[1:] and bias.dtype == weight.dtype and spec["beta"] == spec["alpha"] == 1

    def _gradient(self, op: ir.Operation, rows: ir.Value, weight: ir.Value, has_bias: bool) -> _Backward:
        """What ``op``, the gradient of a softmax, and the products behind it say."""
        no_class = "the gradient is not of one class a row"
        scaled = _maker(op.operands[0])
        if scaled is None or target_name(scaled) != "aten.mul.Tensor" or len(list(scaled.results[0].uses)) != 1:
            raise _Apart(no_class)
        sides = list(scaled.operands)[:2]
        makers = filter(None, map(_maker, sides))
        scatter = next((maker for maker in makers if target_name(maker) == "aten.scatter.value"), None)
        zeros = _maker(captured(scatter.operands[0])) if scatter is not None else None
        if scatter is None or zeros is None or not self._is_of_rows(scatter) or len(list(scatter.results[0].uses)) != 1:
            raise _Apart(no_class)
        is_full = target_name(zeros) == "aten.full"
        is_zero = self._reader.read(zeros).spec["fill_value"] == 0 if is_full else target_name(zeros) == "aten.zeros"
        if not is_zero:
            raise _Apart(no_class)
        side = 1 if sides[0] == scatter.results[0] else 0
        count, type_ = self._type(rows).shape[0], self._type(sides[side])
        if type_.dtype != torch.float32 or type_.shape not in ((count, 1), (1, 1), (1,), ()):
            raise _Apart(no_class)
        scale = float(self._reader.read(scatter).spec["value"])
        alone = [zeros] if zeros.block == op.block and len(list(zeros.results[0].uses)) == 1 else []
        links, slopes = self._slopes(op)
        products = self._products(slopes, rows, weight, has_bias)
        behind = [product for product in products if product is not None]
        return _Backward(scaled, side, scatter, scale, *products, (*alone, scatter, scaled, op, *links, *behind))

    def _slopes(self, op: ir.Operation) -> tuple[list[ir.Operation], ir.Value]:
        """The calls behind the gradient of the softmax, to the gradient of the product."""
        links, value = [], op.results[0]
        while True:
            readers = [use.owner.operation for use in value.uses]
            if len(readers) != 1 or not readers[0].name.startswith("torch.") or target_name(readers[0]) not in _LINKS:
                return links, value
            (reader,) = readers
            if not _is_view(reader):
                links.append(reader)
            value = reader.results[0]

    def _products(
        self, slopes: ir.Value, rows: ir.Value, weight: ir.Value, has_bias: bool
    ) -> tuple[ir.Operation | None, ir.Operation | None, ir.Operation | None]:
        """The products of ``slopes`` [rows, classes] with the weight, and of its transpose with the rows; their sum over
        the rows, if the layer ``has_bias``.
        """
        to_rows, to_weight, to_bias = [], [], []
        for use in slopes.uses:
            op = use.owner.operation
            target = target_name(op) if op.name.startswith("torch.") else op.name
            if target == PRODUCT and op.operands[0] == slopes and self._type(op.operands[1]) == self._type(weight):
                to_rows.append(op)
            elif target in _TURNS:
                behind = [inner.owner.operation for inner in op.results[0].uses]
                for product in behind:
                    is_product = product.name == f"torch.{PRODUCT}" and product.operands[0] == op.results[0]
                    if not is_product or product.operands[1] != rows:
                        raise _Apart("the gradient of the logits is kept")
                to_weight += behind
            elif target == "aten.sum.dim_IntList" and has_bias and self._sums_rows(op):
                to_bias.append(op)
            else:
                raise _Apart("the gradient of the logits is kept")
        if max(map(len, (to_rows, to_weight, to_bias))) > 1 or not to_rows + to_weight:
            raise _Apart("the gradient of the logits is not that of a linear layer")
        return (to_rows or [None])[0], (to_weight or [None])[0], (to_bias or [None])[0]

    def _sums_rows(self, op: ir.Operation) -> bool:
        spec = self._reader.read(op).spec
        (made,) = spec.results
        return [dim % 2 for dim in spec["dim"]] == [0] and made is not None and made.dtype == spec["self"].dtype

    def _number(self, op: ir.Operation) -> int:
        return self._numbers[op.results[0]]

    def _type(self, value: ir.Value) -> TensorType:
        type_ = read_type(value.type)
        assert type_ is not None
        return type_


def _maker(value: ir.Value) -> ir.Operation | None:
    """The ATen call that makes a value."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return op if op.name.startswith("torch.") and not op.name.startswith(("torch.prim", "torch.constant")) else None


def _factors(product: ir.Operation) -> tuple[ir.Value, ir.Value]:
    first = 0 if target_name(product) == PRODUCT else 1
    return product.operands[first], product.operands[first + 1]


def _turned(product: ir.Operation) -> ir.Value | None:
    """The weight [classes, size] of a product with its transpose, as the product's block knows it."""
    turn = _maker(captured(_factors(product)[1]))
    if turn is None or target_name(turn) not in _TURNS:
        return None
    return turn.operands[0] if turn.block == product.block else inside(turn.operands[0], product.block)


def _behind(value: ir.Value, first: ir.Operation) -> list[ir.Operation]:
    """The ops behind ``first`` in its block that ``value`` is made by, in order."""
    places = {other.operation: number for number, other in enumerate(first.block.operations)}
    found: dict[ir.Operation, None] = {}
    waiting = [value]
    while waiting:
        owner = waiting.pop().owner
        op = None if isinstance(owner, ir.Block) else owner.operation
        if op is not None and op not in found and op.block == first.block and places[op] >= places[first]:
            found[op] = None
            waiting += op.operands
    return sorted(found, key=places.__getitem__)


def _is_view(op: ir.Operation) -> bool:
    return target_name(op) in VIEWS


def _place(op: ir.Operation) -> int:
    """Where an op stands in its block."""
    return next(n for n, other in enumerate(op.block.operations) if other.operation == op)
