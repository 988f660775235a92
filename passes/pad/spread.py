"""Propagation of padding from the arguments that a plan pads to all values that share their factors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from shardc.dialects.rules.rule import Dim, Rule
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program, carried_values, same_rule
from shardc.passes.pad.call import works_padded
from shardc.passes.pad.span import Padding, Spans, is_tail, joined, no_padding, of_dim, of_factors

FactorPadding = dict[str, Spans]


class PaddingSpread:
    """The padding of every value, propagated from ``seeds`` to a fixed point by the calls' rules, both ways.

    Values that a user sees (arguments, results, named gradients) are padded only at the end of a dim.
    """

    def __init__(self, program: Program, seeds: Mapping[int, Padding]) -> None:
        self._program = program
        self._now = [no_padding(len(t.shape)) for t in program.types]
        named = (v for n in program.nodes if "dist.name" in n.op.attributes for v in n.results)
        self._edges = {*program.arguments, *program.returns, *named}
        self._refused: set[int] = set()
        self._links = carried_values(program)
        self._steps_of: list[list[int]] = [[] for _ in program.types]
        """For each value, the numbers of its steps: calls, then links between arguments and results."""
        for number, values in enumerate([*(n.values for n in program.nodes), *self._links]):
            for value in dict.fromkeys(values):
                self._steps_of[value].append(number)
        for value, padding in seeds.items():
            self._now[value] = padding
        self._run(seeds)

    def padding(self, value: int) -> Padding:
        return self._now[value]

    def of_call(self, number: int) -> FactorPadding:
        """Return the padding of a call's factors that all tensors with the factor can express."""
        node = self._program.nodes[number]
        wanted = {} if number in self._refused else self._wanted(node)
        kept = {f: tuple(s for s in spans if self._is_said(node, f, s)) for f, spans in wanted.items()}
        return self._working(number, {f: spans for f, spans in kept.items() if spans})

    def _working(self, number: int, factors: FactorPadding) -> FactorPadding:
        """Return ``factors``, or nothing if the call does not work padded; the call is then never padded."""
        node = self._program.nodes[number]
        if factors and not works_padded(node.spec, node.rule, factors):
            self._refused.add(number)
            return {}
        return factors

    def _run(self, changed: Iterable[int]) -> None:
        queue = deque(dict.fromkeys(s for v in changed for s in self._steps_of[v]))
        waiting = set(queue)
        while queue:
            step = queue.popleft()
            waiting.discard(step)
            for value in self._step(step):
                for other in self._steps_of[value]:
                    if other not in waiting:
                        waiting.add(other)
                        queue.append(other)

    def _step(self, number: int) -> list[int]:
        """Process one call or link, and return the values whose padding grew."""
        nodes = self._program.nodes
        if number >= len(nodes):
            argument, result = self._links[number - len(nodes)]
            rule, values = same_rule(self._program.types[argument]), (argument, result)
            wanted = self._offers(rule, values)
        else:
            node = nodes[number]
            rule, values = node.rule, node.values
            wanted = {} if number in self._refused else self._working(number, self._wanted(node))
        tensors = zip(rule.operands + rule.results, values, strict=True) if wanted else ()
        return [v for dims, v in tensors if self._take(v, dims, rule, wanted)]

    def _wanted(self, node: Node) -> FactorPadding:
        offers = self._offers(node.rule, node.values)
        if phase_of(node.op) != "optimizer":
            offers = {f: tuple(s for s in spans if not s.stored) for f, spans in offers.items()}
        return {f: s for f, s in offers.items() if s and node.rule.neutral_of(f) is not None}

    def _offers(self, rule: Rule, values: tuple[int, ...]) -> FactorPadding:
        found: FactorPadding = {}
        for dims, value in zip(rule.operands + rule.results, values, strict=True):
            for dim, spans in zip(dims, self._now[value], strict=True):
                for f, inside in of_factors(dim, rule.sizes, spans).items() if spans else ():
                    for s in inside:
                        found[f] = joined(found.get(f, ()), s)
        return found

    def _take(self, value: int, dims: tuple[Dim, ...], rule: Rule, wanted: FactorPadding) -> bool:
        """Add allowed spans to a value's padding. Return whether it changed."""
        shape = self._program.types[value].shape
        padding = []
        for size, dim, old in zip(shape, dims, self._now[value], strict=True):
            new = old
            for s in of_dim(dim, rule.sizes, wanted):
                new = joined(new, s)
            padding.append(new if value not in self._edges or is_tail(size, new) else old)
        changed = tuple(padding) != self._now[value]
        self._now[value] = tuple(padding)
        return changed

    def _is_said(self, node: Node, factor: str, span: object) -> bool:
        """Return whether every tensor of a call that has ``factor`` has this padding."""
        rule = node.rule
        tensors = zip(rule.operands + rule.results, node.values, strict=True)
        dims = ((d, s) for dims, v in tensors for d, s in zip(dims, self._now[v], strict=True) if factor in d)
        return all(span in of_factors(dim, rule.sizes, spans).get(factor, ()) for dim, spans in dims)
