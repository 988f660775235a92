"""Records one traced call and its side effects, which a copy would not have."""

from __future__ import annotations

from collections.abc import Callable

import torch

from shardc.frontend.step.fold.effects import effects
from shardc.frontend.step.fold.given import Given
from shardc.frontend.step.fold.kind import Kind
from shardc.frontend.step.fold.sample import Sample, check_unwritten, placed
from shardc.frontend.step.fold.tape import Unfoldable
from shardc.frontend.step.frozen import changes


class Recording:
    """Record of a call from its start. ``seen`` changes if a layer reads something specific to it."""

    def __init__(
        self,
        kind: Kind,
        given: Given,
        edges: list[torch.Tensor],
        seen: Callable[[], object],
    ) -> None:
        self._kind, self._given, self._edges = kind, given, edges
        self._seen = seen
        self._before = effects(given.module), seen()
        self._last, self._drawn = kind.tape.last(), kind.stream.position

    def end(self, result: object) -> None:
        """Add the call, which returned ``result``, to its kind, or the reason why it cannot be copied."""
        try:
            self._check_effects()
            self._kind.add(self._sample(result))
        except Unfoldable as error:
            self._kind.refused = error.reason

    def _check_effects(self) -> None:
        values, seen = self._before
        if (changed := changes(values, effects(self._given.module))) != []:
            raise Unfoldable(f"it changes {'.'.join(changed[0])}")
        if self._seen() != seen:
            raise Unfoldable("it reads its own place among the layers, or a value")
        check_unwritten(self._given.tensors, self._given.nodes, self._kind.tape)

    def _sample(self, result: object) -> Sample:
        tape, stream = self._kind.tape, self._kind.stream
        returned, outputs = placed(result, self._given)
        output_nodes = [node for tensor in outputs if (node := tape.node(tensor)) is not None]
        edge_nodes = [node for edge in self._edges if (node := tape.node(edge)) is not None]
        if len(output_nodes) < len(outputs) or len(edge_nodes) < len(self._edges):
            raise Unfoldable("it returns a constant")
        sample = Sample(
            given=self._given,
            edges=self._edges,
            edge_nodes=edge_nodes,
            nodes=tape.after(self._last),
            outputs=outputs,
            output_nodes=output_nodes,
            returned=returned,
            drawn=self._drawn,
            draws=stream.position - self._drawn,
        )
        sample.check_outputs(tape)
        return sample
