"""Cache of stages' results by their inputs, so that schedules of one step share work."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b

import torch

from shardc.backends.eager.ranks import Values


class Recall:
    """What stages gave in earlier runs.

    A stage is a function: the same text, micro-batch and inputs give the same results, whichever schedule ran
    it. So a second schedule of a step computes only what it adds in another order. For runs that agree in
    ``widen`` and in what a rank of the pipeline is (the mesh without the pipeline's axis).
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, list[Values]] = {}
        self._contents: dict[int, bytes] = {}
        self._kept: list[torch.Tensor] = []
        self.computed = 0
        """How many actions were not remembered."""

    def results(
        self, stage: str, micro_batch: int, inputs: Sequence[Values], compute: Callable[[], list[Values]]
    ) -> list[Values]:
        """What the stage with the text ``stage`` makes of ``inputs``."""
        key = stage, micro_batch, tuple(self._content(t) for values in inputs for t in values)
        if key not in self._made:
            self.computed += 1
            self._made[key] = compute()
        return self._made[key]

    def _content(self, tensor: torch.Tensor) -> bytes:
        """A digest of a tensor; of one object it is taken once, so tensors that were seen are kept."""
        if id(tensor) not in self._contents:
            self._kept.append(tensor)
            digest = blake2b(
                f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}".encode(), digest_size=16
            )
            digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
            self._contents[id(tensor)] = digest.digest()
        return self._contents[id(tensor)]
