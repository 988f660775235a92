"""Linear layers with a cross entropy behind them in the graphs of AOTAutograd, as ``shardc::linear_cross_entropy``.

A forward and its backward are graphs of their own, and what a kernel does not keep in the one the other must not ask
for: so calls are replaced in the joint graph, before it is cut. What is looked for is
``nll_loss_forward(log_softmax(linear(rows, weight, bias)), target)``, the log_softmax in the two steps of
``shardc.driver.partition``, with views and conversions between; the sum of all logarithms of a row, which label smoothing
adds; and their gradients, with the products behind these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.fx import Graph, Node

import shardc.runtime.linear_cross_entropy  # noqa: F401  (registers the ops)
from shardc.frontend.insertion import insert_before

aten = torch.ops.aten
LOSS, LOSS_BACKWARD = aten.nll_loss_forward.default, aten.nll_loss_backward.default
GRADIENT = aten._log_softmax_backward_data.default
_LINKS = frozenset(
    (
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten._to_copy.default,
        aten.clone.default,
    )
)
_TURNS = frozenset((aten.t.default, aten.transpose.int, aten.permute.default))
_ALIASES = frozenset((aten.detach.default, aten.alias.default))
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
NONE, MEAN = 0, 1
"""Of at::Reduction."""


class Apart(Exception):
    """Why the logits of a linear layer are made, in words. ``product`` and ``loss`` are the calls."""

    def __init__(self, product: Node, loss: Node, why: str) -> None:
        super().__init__(why)
        self.product, self.loss, self.why = product, loss, why


@dataclass
class LinearLoss:
    """The nodes of one loss. ``slope`` is the gradient of its log_softmax, of whose products ``drows``, ``dweight``
    and ``dbias`` are the results; None for what nobody asks for. ``nodes``: all that are replaced.
    """

    product: Node
    loss: Node
    softmax: Node
    weight: Node
    total: Node | None = None
    loss_backward: Node | None = None
    slope: Node | None = None
    spread: Node | None = None
    drows: Node | None = None
    dweight: Node | None = None
    dbias: Node | None = None
    nodes: dict[Node, None] = field(default_factory=dict)

    @property
    def rows(self) -> Node:
        return self.product.args[-2]  # type: ignore[return-value]

    @property
    def bias(self) -> Node | None:
        return self.product.args[0] if self.product.target is aten.addmm.default else None  # type: ignore[return-value]

    @property
    def results(self) -> list[Node]:
        """What others read."""
        values = [user for user in self.loss.users if user.args[1] == 0]
        found = (*values, self.total, self.drows, self.dweight, self.dbias)
        return [node for node in found if node is not None]

    def alone(self) -> dict[Node, None]:
        """All nodes, in order, with those that transpose its weight."""
        found = dict.fromkeys(self.nodes)
        for product in (self.product, self.drows):
            value = self.weight if product is None else product.args[-1]
            while value is not self.weight:
                found[value] = None  # type: ignore[index]
                value = value.args[0]  # type: ignore[union-attr]
        return {node: None for node in self.product.graph.nodes if node in found}

    @property
    def spared_bytes(self) -> int:
        """Of the logits, as they are multiplied and in f32, which are held from forward to backward."""
        logits = _value(self.product)
        return logits.numel() * (logits.element_size() + (4 if logits.dtype != torch.float32 else 0))


def find_losses(
    graph: Graph, is_softmax: Callable[[Node], object], numerics: str
) -> Iterator[LinearLoss | Apart]:
    """The losses of linear layers; ``is_softmax`` says of a node whether it is the last step of a log_softmax. With
    ``eager`` numerics logits of 16 bits are rounded, and so made.
    """
    for node in list(graph.nodes):
        if node.target is not LOSS:
            continue
        softmax = _without_aliases(node.args[0])
        rounded = softmax.target is aten._to_copy.default and is_softmax(softmax.args[0])
        last = softmax.args[0] if rounded else softmax
        product = _product(last.args[0].args[0]) if is_softmax(last) and _is_whole(last) else None
        if product is None:
            continue
        try:
            yield _Reader(product, node, softmax, last, numerics).read()
        except Apart as apart:
            yield apart


def replace(loss: LinearLoss) -> None:
    """Writes the ops of ``shardc`` in place of a loss's calls."""
    forward, backward = _forward(loss), None
    if loss.slope is not None:
        backward = _backward(loss, *forward)
        for old, new in zip((loss.drows, loss.dweight, loss.dbias), backward, strict=True):
            if old is not None:
                old.replace_all_uses_with(new)
    for node in reversed(loss.nodes):
        loss.product.graph.erase_node(node)


@dataclass
class _Reader:
    """Reads one loss. ``softmax`` is what the loss reads, ``last`` the same before it is rounded."""

    product: Node
    loss: Node
    softmax: Node
    last: Node
    numerics: str

    def read(self) -> LinearLoss:
        product, weight = self.product, _base(self.product.args[-1])
        logits, made = _value(product), _value(self.softmax)
        values = [_value(node) for node in product.args]
        if any(not isinstance(n, int) for value in (*values, made) for n in value.shape):
            self._apart("sizes are known at run time only")
        if made.dim() != 2 or self._maximum().args[1] not in ([1], [-1]) or made.shape[1] != logits.shape[1]:
            self._apart("the softmax is not of rows")
        self._check_dtype(logits.dtype)
        if weight is None or _value(weight).shape != (logits.shape[1], values[-1].shape[0]):
            self._apart("the weight is not [classes, size]")
        if product.kwargs or (len(product.args) == 3 and values[0].shape != (logits.shape[1],)):
            self._apart("what is added to the logits is no bias")
        found = LinearLoss(product, self.loss, self.softmax, weight)
        self._take(found, self._chain())
        self._readers(found)
        order = {node: number for number, node in enumerate(product.graph.nodes)}
        found.nodes = dict.fromkeys(sorted(found.nodes, key=order.__getitem__))
        return found

    def _apart(self, why: str) -> NoReturn:
        raise Apart(self.product, self.loss, why)

    def _check_dtype(self, dtype: torch.dtype) -> None:
        """Of logits, anywhere between the product and the softmax, which kernels have in f32 alone."""
        if dtype not in _FLOATS or (self.numerics == "eager" and dtype != torch.float32):
            self._apart(
                f"logits are rounded to {dtype}" if dtype.itemsize < 4 else f"the softmax is in {dtype}"
            )

    def _maximum(self) -> Node:
        return self.last.args[0].args[1]

    def _chain(self) -> list[Node]:
        """The calls from the product to the loss, of which no other reads what is between."""
        shifted, log = self.last.args
        total = log.args[0]  # type: ignore[union-attr]
        inner = [self.last, log, total, total.args[0], shifted, shifted.args[1]]  # type: ignore[union-attr]
        value = shifted.args[0]  # type: ignore[union-attr]
        while value is not self.product:
            last = _value(value).shape[-1]
            if value.target not in _LINKS or last != _value(self.product).shape[-1]:
                self._apart("what lies between them is no view of rows")
            self._check_dtype(_value(value).dtype)
            inner.append(value)
            value = value.args[0]
        inside = {*inner, self.softmax}
        for node in (self.product, *inner[1:]):
            for user in node.users:
                if user not in inside:
                    self._apart(f"the logits are kept: {_says(user)}")
        return [self.product, *inner, *([self.softmax] if self.softmax is not self.last else [])]  # type: ignore[list-item]

    def _readers(self, found: LinearLoss) -> None:
        """What reads the logarithms of all probabilities, and what is behind their gradient."""
        others = list(self.last.users) if self.last is not self.softmax else []
        readers = [*(user for user in others if user is not self.softmax), *self.softmax.users]
        gradients = []
        while readers:
            user = readers.pop(0)
            if user.target in _ALIASES:
                found.nodes[user] = None
                readers += user.users
            elif user is self.loss:
                found.nodes |= dict.fromkeys((user, *user.users))
            elif _is_sum(user, ([1],), ([-1],)) and found.total is None:
                found.total = user
                found.nodes[user] = None
            elif (
                user.target is LOSS_BACKWARD
                and user.args[2:6] == self._settings()
                and found.loss_backward is None
            ):
                found.loss_backward = user
                found.nodes[user] = None
            elif user.target is GRADIENT and _without_aliases(user.args[1]) is self.softmax:
                gradients.append(user)
            else:
                self._apart(f"the logarithms of all probabilities are kept: {_says(user)}")
        if len(gradients) > 1 or bool(gradients) != (found.loss_backward is not None):
            self._apart("the loss is not of one class a row")
        if gradients:
            self._gradient(found, gradients[0])

    def _settings(self) -> tuple[Any, ...]:
        """The target, the weight of each class, the reduction and the class that is ignored."""
        return tuple(self.loss.args[1:5])

    def _gradient(self, found: LinearLoss, gradient: Node) -> None:
        """What is behind the gradient of the log_softmax: conversions, and products with the weight and the rows."""
        found.slope = gradient
        given = gradient.args[0]
        if given is not found.loss_backward:
            found.spread = self._spread(found, given)
            self._take(found, [given])
        if set(found.loss_backward.users) != {given if found.spread is not None else gradient}:
            self._apart("the gradient of the loss is kept")
        value = gradient
        self._take(found, [gradient])
        while len(value.users) == 1 and next(iter(value.users)).target in _LINKS:
            value = next(iter(value.users))
            self._take(found, [value])
        if _value(value).shape != _value(self.product).shape:
            self._apart("the gradient of the logits is kept")
        for user in value.users:
            if (
                user.target is aten.mm.default
                and user.args[0] is value
                and _base(user.args[1], 0) is found.weight
            ):
                self._give(found, "drows", user)
            elif _is_sum(user, ([0], True)) and found.bias is not None:
                self._give(found, "dbias", user)
            elif user.target in _TURNS and _base(user) is value:
                self._take(found, [user])
                for product in user.users:
                    if product.target is not aten.mm.default or product.args != (user, found.rows):
                        self._apart("the gradient of the logits is kept")
                    self._give(found, "dweight", product)
            else:
                self._apart("the gradient of the logits is kept")
        if found.drows is None and found.dweight is None:
            self._apart("the gradient of the logits is not that of a linear layer")

    def _spread(self, found: LinearLoss, given: Node) -> Node:
        """The gradient of the sum of a row's logarithms, in a sum with that of the loss."""
        if given.target is aten.add.Tensor and not given.kwargs and len(given.users) == 1:
            sides = [side for side in given.args if side is not found.loss_backward]
            side = sides[0] if len(sides) == 1 else None
            if isinstance(side, Node) and side.target is aten.expand.default and len(side.users) == 1:
                spread = side.args[0]
                if (
                    spread.target is aten.unsqueeze.default
                    and spread.args[1] in (1, -1)
                    and len(spread.users) == 1
                ):
                    self._take(found, [side, spread])
                    return spread.args[0]
        self._apart("the gradient is not of one class a row")

    def _give(self, found: LinearLoss, role: str, node: Node) -> None:
        if getattr(found, role) is not None:
            self._apart("the gradient of the logits is not that of a linear layer")
        setattr(found, role, node)
        self._take(found, [node])

    def _take(self, found: LinearLoss, nodes: Sequence[Node]) -> None:
        found.nodes |= dict.fromkeys(nodes)


def _forward(loss: LinearLoss) -> tuple[Node, Node, Node, Node | None, Node]:
    """The class of each row (0 where it is ignored), which are ignored, lse, the weight of each row, and their sum."""
    node = loss.loss
    _, target, weight, reduction, ignored = node.args
    before = _Before(node)
    is_ignored = before(aten.eq.Scalar, target, ignored)
    index = before(aten.masked_fill.Scalar, target, is_ignored, 0)
    made = before(torch.ops.shardc.linear_cross_entropy.default, loss.rows, loss.weight, loss.bias, index)
    logp, lse = before.item(made, 0), before.item(made, 1)
    share = None if weight is None else before.wide(before(aten.index_select.default, weight, 0, index))
    each = before(aten.neg.default, logp if share is None else before(aten.mul.Tensor, logp, share))
    each = before(aten.masked_fill.Scalar, each, is_ignored, 0)
    if share is None:
        counted = before.wide(before(aten.logical_not.default, is_ignored))
    else:
        counted = before(aten.masked_fill.Scalar, share, is_ignored, 0)
    total = before(aten.sum.default, counted)
    value = each if reduction == NONE else before(aten.sum.default, each)
    if reduction == MEAN:
        value = before(aten.div.Tensor, value, total)
    dtype = _value(loss.softmax).dtype
    for user in list(node.users):
        if user.args[1] == 0:
            user.replace_all_uses_with(before.to(value, dtype))
        elif any(reader is not loss.loss_backward for reader in user.users):
            user.replace_all_uses_with(
                before.to(total, dtype), delete_user_cb=lambda u: u is not loss.loss_backward
            )
    if loss.total is not None:
        loss.total.replace_all_uses_with(before.to(before.item(made, 2), dtype))
    return index, is_ignored, lse, share, total


def _backward(
    loss: LinearLoss, index: Node, is_ignored: Node, lse: Node, share: Node | None, total: Node
) -> tuple[Node, Node, Node]:
    """drows, dweight and dbias."""
    assert loss.slope is not None and loss.loss_backward is not None
    before = _Before(loss.slope)
    grad = before.wide(loss.loss_backward.args[0])
    if loss.loss.args[3] == MEAN:
        grad = before(aten.div.Tensor, grad, total)
    grad = before(aten.neg.default, grad)
    if share is not None:
        grad = before(aten.mul.Tensor, grad, share)
    rows = _value(loss.rows).shape[0]
    if _value(grad).shape != (rows,):
        grad = before(aten.expand.default, grad, [rows])
    grad = before(aten.masked_fill.Scalar, grad, is_ignored, 0)
    spread = None if loss.spread is None else before.wide(loss.spread)
    op = torch.ops.shardc.linear_cross_entropy_backward.default
    made = before(op, grad, spread, loss.rows, loss.weight, loss.bias, index, lse)
    return before.item(made, 0), before.item(made, 1), before(aten.unsqueeze.default, before.item(made, 2), 0)


@dataclass
class _Before:
    """Writes calls in front of a node."""

    node: Node

    def __call__(self, target: Any, *args: Any) -> Node:
        mode = next(
            v.fake_mode for n in self.node.all_input_nodes if isinstance(v := n.meta["val"], torch.Tensor)
        )
        return insert_before(self.node, target, args, mode=mode)

    def item(self, made: Node, number: int) -> Node:
        return self(operator.getitem, made, number)

    def to(self, value: Node, dtype: torch.dtype) -> Node:
        if _value(value).dtype == dtype:
            return value
        mode = _value(value).fake_mode  # type: ignore[attr-defined]
        return insert_before(self.node, aten._to_copy.default, (value,), {"dtype": dtype}, mode=mode)

    def wide(self, value: Any) -> Node:
        return self.to(value, torch.float32)


def _value(node: Any) -> torch.Tensor:
    return node.meta["val"]


def _is_sum(node: Node, *settings: tuple[Any, ...]) -> bool:
    """Whether a node adds up over one of ``settings``, its dims and maybe whether they are kept, in its own dtype."""
    return node.target is aten.sum.dim_IntList and node.args[1:] in settings and not node.kwargs


def _says(user: Node) -> str:
    return "the program gives them to its caller" if user.op == "output" else f"{user.target} reads them, too"


def _without_aliases(node: Any) -> Node:
    while node.target in _ALIASES:
        node = node.args[0]
    return node


def _is_whole(softmax: Any) -> bool:
    """Whether the steps of a log_softmax are of one tensor and one dim."""
    shifted, log = softmax.args
    total = log.args[0]
    if shifted.target is not aten.sub.Tensor or not isinstance(shifted.args[1], Node):
        return False
    top = shifted.args[1]
    same = (
        top.target is aten.amax.default
        and top.args[0] is shifted.args[0]
        and total.args[0].args[0] is shifted
    )
    return same and top.args[1:] == total.args[1:] and top.args[2:] == (True,)


def _product(value: Any) -> Node | None:
    """The product whose logits a softmax reads, behind views and conversions; None if there is none."""
    while value.target in _LINKS:
        value = value.args[0]
    return value if value.target in (aten.mm.default, aten.addmm.default) else None


def _base(node: Any, turns: int = 1) -> Node | None:
    """What a matrix is a transpose of, after an odd number of turns if ``turns`` is 1, else an even one."""
    found = 0
    while node.target in _TURNS and _is_turn(node):
        node, found = _without_aliases(node.args[0]), found + 1
        if found % 2 == turns % 2 and node.target not in _TURNS:
            break
    return node if found % 2 == turns % 2 else None


def _is_turn(node: Node) -> bool:
    if node.target is aten.t.default:
        return True
    dims = list(node.args[1]) if node.target is aten.permute.default else list(node.args[1:])  # type: ignore[arg-type]
    return (
        len(dims) == 2
        and sorted(d % 2 for d in dims) == [0, 1]
        and (node.target is aten.transpose.int or [d % 2 for d in dims] == [1, 0])
    )
