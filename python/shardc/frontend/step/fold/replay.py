"""Call of a layer that copies the nodes of another call, in forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from shardc.frontend.step.fold.given import Given
from shardc.frontend.step.fold.kind import Gradients, Kind
from shardc.frontend.step.fold.tape import Known, Unfoldable
from shardc.runtime.torch_private import without_torch_functions


class Copied:
    """One call that copies its kind's sample."""

    def __init__(self, kind: Kind, given: Given) -> None:
        assert kind.sample is not None
        self.kind, self.given, self.sample = kind, given, kind.sample
        own = [n for t, n in zip(given.tensors, given.nodes, strict=True) if t.requires_grad]
        self._known: Known = self.sample.known(given, own) | {seed: seed for seed in kind.tape.seeds}
        self._draws = kind.stream.position - self.sample.drawn
        self.outputs: list[torch.Tensor] = []

    @property
    def output_nodes(self) -> list[Node]:
        """Return the nodes of the tensors that it made and returned."""
        return [self._known[node] for node in self.sample.output_nodes]

    def run(self) -> object:
        """Copy the forward and return the call's result."""
        tape, inputs = self.kind.tape, self.given.differentiable
        moved = tape.moved(self.sample.given.module, self.given.module)
        tape.copy(self.sample.nodes, self._known, self._draws, moved)
        self.kind.stream.skip(self.sample.draws)
        made = tape.stand_ins(self.output_nodes)
        self.outputs = list(_Copy.apply(self, made, *inputs)) if inputs else made
        return self.sample.returned.of(self.given.tensors, self.outputs)

    def backward(self, grads: Gradients) -> Gradients:
        """Copy the backward: map gradients of outputs to gradients of differentiable inputs."""
        tape = self.kind.tape
        if torch.is_grad_enabled() or not tape.is_backward:
            raise Unfoldable("the forward differentiates it")
        pattern, nodes = self.kind.backward(grads)
        known = {**self._known, **dict(zip(pattern.given, nodes, strict=True))}
        with without_torch_functions():
            tape.copy(pattern.nodes, known, self._draws)
            tape.follow(self.given.lines)  # as the edges of a traced call
            made = iter(tape.stand_ins([known[node] for node in pattern.results if node is not None]))
        return [None if node is None else next(made) for node in pattern.results]


class _Copy(torch.autograd.Function):
    """A copied call in autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any, call: Copied, made: list[torch.Tensor], *_: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        ctx.set_materialize_grads(False)
        likes = zip(made, call.sample.outputs, strict=True)
        ctx.mark_non_differentiable(*(tensor for tensor, like in likes if not like.requires_grad))
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return None, None, *ctx.call.backward(grads)
