"""Parser of rules in their printed form: ``([i,k],[k,j])->([i,j]) reduce={k}``.

A tensor is a list of dims in brackets. A dim is a factor, several factors in parentheses (the most major
first), ``1`` for a dim that no factor describes, or ``...`` for all other dims, as in ``torch.einsum``.
``reduce={...}`` (a sum), ``reduce_max={...}``, ``reduce_min={...}`` and ``replicate={...}`` follow the
tensors, and ``linear={...}`` once for each set of operand numbers.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NoReturn, TypeVar

from shardc.diagnostics.dialects.rules import BadRuleText
from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Rule

_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d+|\.\.\.|->|[()\[\]{},=])")
_REDUCTIONS = {"reduce": "sum", "reduce_max": "max", "reduce_min": "min"}
_REST: Dim = ("...",)
_T = TypeVar("_T")


def parse_rule(text: str, call: OpCall) -> Rule:
    """Parse the rule ``text`` of ``call``, whose shapes give the sizes of factors.

    A tensor with 1 element in a dim whose factor is larger elsewhere is broadcast: it has no factor there.
    The rule is not proved here. Raises BadRuleText.
    """
    parser = _Parser(text, call.target)
    operands, results, kinds = parser.rule()
    sizing = _Sizing(parser, [*call.tensors, *call.results])
    dims = sizing.dims([*operands, *results])
    used = {f for tensor in dims for dim in tensor for f in dim}
    sizes = {f: n for f, n in sizing.sizes.items() if f in used}
    reduce: dict[str, str] = {}
    replicate: set[str] = set()
    linear: list[frozenset[int]] = []
    for kind, items in kinds:
        factors = [f for item in items for f in sizing.expanded(item)]
        if kind == "linear":
            linear.append(frozenset(map(parser.number, items)))
        elif kind == "replicate":
            replicate.update(factors)
        else:
            reduce.update({f: _REDUCTIONS[kind] for f in factors})
    count = len(operands)
    return Rule(tuple(dims[:count]), tuple(dims[count:]), sizes, reduce, frozenset(replicate), tuple(linear))


@dataclass
class _Parser:
    """Recursive descent over the text's tokens."""

    text: str
    target: str
    rest: list[str] = field(default_factory=list)

    def fail(self, problem: str) -> NoReturn:
        raise BadRuleText(op=self.target, text=self.text, problem=problem)

    def rule(self) -> tuple[list[list[Dim]], list[list[Dim]], list[tuple[str, list[str]]]]:
        """Parse the dims of operands and of results, and each kind with the list in its braces."""
        self.rest = self._tokens()
        operands = self._list("(", self._tensor, ")")
        self._take("->")
        results = self._list("(", self._tensor, ")")
        kinds = []
        while self.rest:
            kinds.append(self._kind())
        return operands, results, kinds

    def number(self, item: str) -> int:
        if not item.isdigit():
            self.fail(f"linear lists operands by number, and {item!r} is not a number")
        return int(item)

    def _tokens(self) -> list[str]:
        found, at, text = [], 0, self.text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self.fail(f"{text[at : at + 10].strip()!r} is not part of a rule")
            found.append(match[1])
            at = match.end()
        return found

    def _take(self, expected: str = "") -> str:
        token = self.rest.pop(0) if self.rest else "the end"
        if expected and token != expected:
            self.fail(f"expected {expected!r}, but found {token!r}")
        return token

    def _list(self, start: str, item: Callable[[], _T], end: str) -> list[_T]:
        self._take(start)
        items: list[_T] = []
        while self.rest and self.rest[0] != end:
            items.append(item())
            if self.rest[:1] == [","]:
                self._take(",")
            elif self.rest[:1] != [end]:
                break
        self._take(end)
        return items

    def _tensor(self) -> list[Dim]:
        return self._list("[", self._dim, "]")

    def _dim(self) -> Dim:
        token = self._take()
        if token == "(":
            factors = []
            while self.rest and self.rest[0] != ")":
                factors.append(self._factor(self._take()))
            self._take(")")
            return tuple(factors)
        if token == "1":
            return ()
        return _REST if token == _REST[0] else (self._factor(token),)

    def _factor(self, token: str) -> str:
        if not token.isidentifier():
            self.fail(f"{token!r} is not the name of a factor")
        return token

    def _kind(self) -> tuple[str, list[str]]:
        kind = self._take()
        if kind not in ("replicate", "linear", *_REDUCTIONS):
            self.fail(f"{kind!r} is not one of {', '.join(_REDUCTIONS)}, replicate, linear")
        self._take("=")
        return kind, self._list("{", self._take, "}")


class _Sizing:
    """Sizes of factors, and the factors of ``...``, from the shapes of the call's tensors."""

    def __init__(self, parser: _Parser, types: Sequence[TensorType | None]) -> None:
        self._parser, self._types = parser, types
        self._left_over = 0
        self.sizes: dict[str, int] = {}

    def dims(self, tensors: Sequence[list[Dim]]) -> list[tuple[Dim, ...]]:
        """Return the tensors' dims with ``...`` expanded, and without factors over which a tensor is
        broadcast.
        """
        if len(tensors) != len(self._types):
            self._parser.fail(f"it has {len(tensors)} tensors, the call {len(self._types)}")
        shapes = [() if t is None else t.shape for t in self._types]
        pairs = enumerate(zip(tensors, shapes, strict=True))
        written = [self._write_out(number, *pair) for number, pair in pairs]
        for tensor, shape in zip(written, shapes, strict=True):
            for dim, size in zip(tensor, shape, strict=True):
                if len(dim) == 1:
                    self.sizes[dim[0]] = max(size, self.sizes.get(dim[0], size))
        for tensor, shape in zip(written, shapes, strict=True):
            self._size_parts(tensor, shape)
        return [self._broadcast(*pair) for pair in zip(written, shapes, strict=True)]

    def _broadcast(self, tensor: list[Dim], shape: tuple[int, ...]) -> tuple[Dim, ...]:
        pairs = zip(tensor, shape, strict=True)
        return tuple(() if size == 1 and self._elements(dim) != 1 else dim for dim, size in pairs)

    def expanded(self, item: str) -> list[str]:
        """Return the factors that a name in braces stands for."""
        return [f"_{i}" for i in range(self._left_over)] if item == _REST[0] else [item]

    def _write_out(self, number: int, tensor: list[Dim], shape: tuple[int, ...]) -> list[Dim]:
        count = tensor.count(_REST)
        more = len(shape) - (len(tensor) - count)
        if count > 1 or (more and not count) or more < 0:
            found = f"tensor {number} has {len(shape)} dims in the call"
            self._parser.fail(f"{found}, which the rule's [...] does not match")
        if not count:
            return tensor
        # Factors are named from the last dim on, as broadcasting aligns tensors of lower rank.
        self._left_over = max(self._left_over, more)
        at = tensor.index(_REST)
        return [*tensor[:at], *((f"_{i}",) for i in reversed(range(more))), *tensor[at + 1 :]]

    def _size_parts(self, tensor: list[Dim], shape: tuple[int, ...]) -> None:
        """Infer the size of a factor that never has a dim of its own from the other factors of its dim."""
        for dim, size in zip(tensor, shape, strict=True):
            unknown = [f for f in dim if f not in self.sizes]
            if len(unknown) > 1:
                why = "one of them must be a dim of a tensor"
                self._parser.fail(f"the sizes of {' and '.join(unknown)} cannot be inferred: {why}")
            known = prod(self.sizes[f] for f in dim if f in self.sizes)
            if unknown:
                if known == 0 or size % known:
                    made = f"{' '.join(dim)} must have {size} elements"
                    self._parser.fail(f"{made}, but the known factors have {known}")
                self.sizes[unknown[0]] = size // known

    def _elements(self, dim: Dim) -> int:
        return prod(self.sizes[f] for f in dim)
