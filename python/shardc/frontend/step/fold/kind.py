"""Calls that compute the same function of their inputs, with a sample to copy and its backward."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.fx import Node

from shardc.frontend.step.fold.given import places
from shardc.frontend.step.fold.sample import Sample
from shardc.frontend.step.fold.tape import Known, Tape, Unfoldable, outer
from shardc.frontend.step.random_stream import RandomStream
from shardc.frontend.step.traced_tensor import layout_of
from shardc.runtime.torch_private import without_torch_functions

Gradients = Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class Backward:
    """Traced backward of a sample, from its outputs' gradients to its edges' gradients."""

    given: list[Node]
    nodes: list[Node]
    results: list[Node | None]


@dataclass(eq=False)
class Watched:
    """Gradients that autograd passes to the backward of a traced call, and the node where that begins."""

    sample: Sample
    known: Known
    grads: list[torch.Tensor | None]
    start: Node | None = None


@dataclass(eq=False)
class Kind:
    """Calls of one key. The first two are traced; others copy ``sample`` if it is set."""

    tape: Tape
    stream: RandomStream
    first: Sample | None = None
    sample: Sample | None = None
    calls: int = 0
    refused: str = ""
    _backwards: dict[Hashable, Backward] = field(default_factory=dict)
    _watched: list[Watched] = field(default_factory=list)
    _is_tracing: bool = False

    def add(self, sample: Sample) -> None:
        """Add the first or second traced call. Raises Unfoldable if the two differ."""
        if self.first is None:
            self.first = sample
            known = {node: node for node in (*sample.given.nodes, *sample.edge_nodes, *sample.nodes)}
        else:
            known = self.first.known(sample.given, sample.edge_nodes)
            self._check_alike(self.first, sample, known)
            self.sample = self.first
        self._watch(sample, known | {seed: seed for seed in self.tape.seeds})

    def _check_alike(self, first: Sample, second: Sample, known: Known) -> None:
        if (first.returned, first.draws) != (second.returned, second.draws):
            raise Unfoldable("its calls return other things, or draw more numbers")
        if [t.requires_grad for t in first.outputs] != [t.requires_grad for t in second.outputs]:
            raise Unfoldable("its calls return tensors with and without gradients")
        known |= {seed: seed for seed in self.tape.seeds}
        reason = self.tape.difference(first.nodes, second.nodes, known, second.drawn - first.drawn)
        if reason is None and [known[node] for node in first.output_nodes] != second.output_nodes:
            reason = "its calls return results of other ops"
        if reason is not None:
            raise Unfoldable(reason)

    def _watch(self, sample: Sample, known: Known) -> None:
        watched = Watched(sample, known, [None] * len(sample.outputs))
        self._watched.append(watched)
        for number, output in enumerate(sample.outputs):
            if output.requires_grad:
                output.register_hook(partial(self._see, watched, number))

    def _see(self, watched: Watched, number: int, grad: torch.Tensor) -> None:
        if not self._is_tracing:
            watched.start = watched.start or self.tape.last()
            watched.grads[number] = grad

    def backward(self, grads: Gradients) -> tuple[Backward, list[Node]]:
        """Return the sample's backward for gradients with these layouts, and the gradients' nodes."""
        with without_torch_functions():
            key, nodes = self._received(grads)
        if key not in self._backwards:
            self._is_tracing = True
            self._backwards[key] = self._traced(grads, nodes)
            self._is_tracing = False
        return self._backwards[key], nodes

    def _received(self, grads: Gradients) -> tuple[Hashable, list[Node]]:
        """Return what determines a backward's ops for these gradients, and their nodes. Raises Unfoldable."""
        held = [grad for grad in grads if grad is not None]
        nodes = [node for grad in held if (node := self.tape.node(grad)) is not None]
        if len(nodes) < len(held):
            raise Unfoldable("its backward is given a constant")
        present = tuple(grad is not None for grad in grads)
        return (present, places(nodes), tuple(map(layout_of, held))), nodes

    def _traced(self, grads: Gradients, given: list[Node]) -> Backward:
        """Run the sample's backward on these gradients. Its nodes serve copies only."""
        sample, last, drawn = self.sample, self.tape.last(), self.stream.position
        assert sample is not None
        pairs = [(o, g) for o, g in zip(sample.outputs, grads, strict=True) if g is not None]
        outputs, wanted = zip(*pairs, strict=True)
        made = torch.autograd.grad(outputs, sample.edges, wanted, retain_graph=True, allow_unused=True)
        with without_torch_functions():
            nodes = self.tape.after(last)
            results = [None if g is None else self.tape.node(g) for g in made]
        own = {*sample.given.nodes, *sample.edge_nodes, *sample.nodes, *self.tape.seeds}
        if self.stream.position != drawn:
            raise Unfoldable("its backward draws random numbers")
        if not own.isdisjoint(given):
            raise Unfoldable("its backward is given what its forward computed")
        if (node := outer(nodes, own.union(given))) is not None:
            raise Unfoldable(f"its backward reads {node}, which is no part of it")
        ends = {node for grad, node in zip(made, results, strict=True) if grad is not None}
        if not ends <= own.union(given, nodes):
            raise Unfoldable("a gradient of it is a constant")
        return Backward(given, nodes, results)

    def check_forward(self) -> None:
        """Raise Unfoldable if others read or wrote intermediate tensors of traced calls."""
        for watched in self._watched if self.sample is not None else ():
            watched.sample.check_kept(self.tape)

    def check_backward(self) -> None:
        """Raise Unfoldable unless autograd ran the same backward for traced calls as for copies."""
        for watched in self._watched if self._backwards else ():
            if watched.start is None:
                continue
            key, given = self._received(watched.grads)
            if (pattern := self._backwards.get(key)) is not None:
                self._check_same(watched, watched.start, pattern, given)

    def _check_same(self, watched: Watched, start: Node, pattern: Backward, given: list[Node]) -> None:
        assert self.sample is not None
        known = {**watched.known, **dict(zip(pattern.given, given, strict=True))}
        nodes = self.tape.after(start)[: len(pattern.nodes)]
        draws = watched.sample.drawn - self.sample.drawn
        if (reason := self.tape.difference(pattern.nodes, nodes, known, draws)) is not None:
            raise Unfoldable(f"in the backward, {reason}")
