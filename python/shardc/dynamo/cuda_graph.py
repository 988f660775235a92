"""CUDA graphs of ``torch.compile``'s programs: ``cuda_graphs=True`` or ``mode="reduce-overhead"``.

A program is captured at its third call, and replayed from then on. A replay does the same work at the same
addresses:

- Parameters, buffers, and results of other captured programs (a backward's activations) are read in place;
  another address needs another capture. Other inputs are copied to memory of the graph.
- Results of a forward that the caller sees are copied out. Tensors that a forward saves for its backward, and
  gradients, stay in memory of the graph: they are *lent*. While a tensor of the last replay is alive (two
  forwards before a backward, accumulated gradients), the program runs without its graph.

Each form of a call (sizes, addresses, stream) has its own graph. An out-of-range index is reported one call
late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from shardc.compiler.warn_once import warn_once
from shardc.cost.work import COPIED_BYTES
from shardc.diagnostics.dynamo import NoCudaGraph
from shardc.runtime import cuda_graph
from shardc.runtime.cuda_graph import WARM_UPS, Captured, first_line
from shardc.runtime.torch_private import is_zero_tensor, storage_address, storage_uses

Runner = Callable[[list[Any]], Sequence[Any]]
"""A function of a list of inputs, which it empties."""

log = logging.getLogger(__name__)

MOST = 8
"""Maximum number of graphs of one program, over all forms and addresses of parameters."""
HELD = 4
"""Consecutive calls that find the last results alive before a warning is issued."""

_resident: set[int] = set()
"""Addresses that captured programs read or wrote, which stay valid while those programs exist."""


@dataclass(frozen=True)
class GraphPlan:
    """Inputs that keep one address (parameters, buffers), and inputs that the program writes to.

    Results from number ``lends`` on are lent; those before are copied out. None lends nothing.
    """

    stays: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    lends: int | None = None


def refuse(why: str) -> None:
    """Warn, once for each cause, that a program has no CUDA graph."""
    warn_once(NoCudaGraph(reason=why))


@dataclass
class _Graph:
    """A captured call.

    Attributes:
        copies: The graph's own inputs, by number. The caller keeps the other inputs at their addresses.
        given: For each result that is an input, the input's number, else None.
        lent: Each lent storage, with its number of uses while nothing is lent.
    """

    copies: dict[int, Tensor]
    work: Captured
    given: list[int | None]
    lent: list[tuple[int, int]]

    def is_lent(self) -> bool:
        return any(storage_uses(storage) > own for storage, own in self.lent)


class GraphedProgram:
    """Callable that runs ``function`` (of a list of inputs, which it empties), and replays it from graphs."""

    def __init__(self, function: Runner, plan: GraphPlan) -> None:
        self._function, self._plan = function, plan
        self._graphs: dict[tuple[object, ...], _Graph] = {}
        self._last: _Graph | None = None
        self._calls = self._held = self.captures = self.replays = 0
        self._refused = False

    def __call__(self, inputs: list[Any]) -> Sequence[object]:
        """Run or replay the program. Raises IndexOutOfRange for an index of this call or the previous one."""
        if self._last is not None:
            last, self._last = self._last, None
            last.work.finish()
        self._calls += 1
        if self._refused or self._calls <= WARM_UPS or cuda_graph.cuda.is_current_stream_capturing():
            return self._function(inputs)
        copied = [n for n, x in enumerate(inputs) if isinstance(x, Tensor) and not self._stays(n, x)]
        key = self._key(inputs, copied)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._captured(inputs, copied)
            if graph is None:
                return self._function(inputs)
            self._graphs[key] = graph
        elif graph.is_lent():
            self._held += 1
            if self._held == HELD:
                refuse(
                    "results of its last call are still in use at each new call (if they are gradients, "
                    "drop them with optimizer.zero_grad(set_to_none=True))"
                )
            return self._function(inputs)
        self._held = 0
        return self._replayed(graph, inputs)

    def _stays(self, number: int, x: Tensor) -> bool:
        if number in self._plan.stays or number in self._plan.written:
            return True
        return x.data_ptr() in _resident and not (x.is_neg() or x.is_conj() or is_zero_tensor(x))

    def _key(self, inputs: Sequence[object], copied: Sequence[int]) -> tuple[object, ...]:
        """Return addresses of inputs that stay, forms of copied inputs, numbers, and the stream."""
        moves = set(copied)

        def form(n: int, x: object) -> object:
            return (n in moves or x.data_ptr(), x.shape, x.stride()) if isinstance(x, Tensor) else x

        return (
            cuda_graph.cuda.current_stream(),
            torch.is_inference_mode_enabled(),
            *map(form, count(), inputs),
        )

    def _captured(self, inputs: Sequence[Any], copied: list[int]) -> _Graph | None:
        """Capture a call; None if the program must run without a graph."""
        size_bytes = sum(inputs[n].numel() * inputs[n].element_size() for n in copied)
        if size_bytes > COPIED_BYTES:
            log.debug("not captured: %s bytes of its inputs lie elsewhere at each call", size_bytes)
            return None
        if len(self._graphs) >= MOST:
            refuse(f"it was called in more than {MOST} forms (sizes, streams, places of its parameters)")
            self._refused = True  # frees its graphs and their memory
            self._graphs.clear()
            return None
        copies = {n: torch.empty_like(inputs[n].detach()).copy_(inputs[n].detach()) for n in copied}
        arguments = [copies.get(n, x) for n, x in enumerate(inputs)]
        try:
            work = Captured(lambda: list(self._function(list(arguments))))
        except RuntimeError as error:
            cuda_graph.cuda.synchronize()
            refuse(first_line(error))
            self._refused = True
            return None
        self.captures += 1
        numbers = {id(x): n for n, x in enumerate(arguments) if isinstance(x, Tensor)}
        given = [numbers.get(id(x)) if isinstance(x, Tensor) else None for x in work.results]
        work.results = [x if n is None else None for x, n in zip(work.results, given, strict=True)]
        staying = [x for n, x in enumerate(arguments) if isinstance(x, Tensor) and n not in copies]
        others = {storage_address(x.untyped_storage()) for x in staying}
        results = [x for n, x in enumerate(work.results) if self._lends(n) and isinstance(x, Tensor)]
        storages = sorted({storage_address(x.untyped_storage()) for x in results} - others)
        _resident.update(x.data_ptr() for x in (*staying, *results))
        return _Graph(copies, work, given, [(s, storage_uses(s)) for s in storages])

    def _lends(self, number: int) -> bool:
        return self._plan.lends is not None and number >= self._plan.lends

    def _replayed(self, graph: _Graph, inputs: list[Any]) -> list[object]:
        given = list(inputs)
        inputs.clear()
        for n, copy in graph.copies.items():
            copy.copy_(given[n].detach(), non_blocking=True)
        graph.work.replay()
        self.replays += 1
        self._last = graph
        pairs = zip(graph.work.results, graph.given, strict=True)
        return [self._handed(n, x) if own is None else given[own] for n, (x, own) in enumerate(pairs)]

    def _handed(self, number: int, x: object) -> object:
        """Return a result for the caller: lent memory, or a copy."""
        if not isinstance(x, Tensor):
            return x
        return x.detach() if self._lends(number) else x.clone()
