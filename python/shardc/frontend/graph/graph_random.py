"""Counter-based random ops of Dynamo's graphs, drawn like those of a traced step, with a seed per call.

The seed is drawn from PyTorch's generator at the start of the graph's forward. Saving and restoring the
generator's state therefore reproduces the numbers, and recomputed parts of the forward repeat them in any
case. Draws are numbered from 0 in trace order, forward before backward, as ``capture_step`` numbers a step's
draws: with equal seeds, a graph draws the same numbers as a step of the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, has_proxy_slot
from torch.fx.node import Argument

from shardc.frontend.operators import Table
from shardc.frontend.operators.random import random_table
from shardc.frontend.step.random_stream import RandomStream
from shardc.runtime.torch_private import pytree

_SEEDS = (-(1 << 63), (1 << 63) - 1)


def draw_seed(device: torch.device | str = "cpu") -> torch.Tensor:
    """Draw the seed of a compiled graph's next call from ``device``'s generator: 0-d int64."""
    return torch.ops.aten.randint.low(*_SEEDS, [], dtype=torch.int64, device=device)


torch.library.define(
    "shardc::graph_seed", "(*, Device device) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)
torch.library.impl("shardc::graph_seed", "CompositeExplicitAutograd", draw_seed)
torch.library.register_fake("shardc::graph_seed", draw_seed)


class GraphStream(RandomStream):
    """Draws of one graph, from the seed at its beginning."""

    def begin(self, *, device: torch.device) -> torch.Tensor:
        """Trace ``shardc::graph_seed`` and reset the numbering, so that another trace draws the same."""
        self.seed = None  # while PyTorch draws it
        self.seed, self._drawn = draw_seed(device), 0
        return self.seed

    def next(self) -> int:
        self._drawn += 1
        return self._drawn - 1

    def table(self) -> Table:
        """Return AOTAutograd decompositions of the seed, and of the random ops that draw from it."""
        drawn: Table = {op: partial(self._drawn_here, draw) for op, draw in random_table(self).items()}
        return {torch.ops.shardc.graph_seed.default: self.begin, **drawn}

    def _drawn_here(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        """Trace a draw; NotImplemented, which leaves the op to PyTorch, where the seed is not available.

        This is the case in the body of a higher-order operator, on another device, or with a generator
        argument.
        """
        leaves, mode = pytree.tree_leaves((args, kwargs)), get_proxy_mode()
        if self.seed is None or mode is None or not has_proxy_slot(self.seed, mode.tracer):
            return NotImplemented
        if _device(leaves) != self.seed.device or any(isinstance(leaf, torch.Generator) for leaf in leaves):
            return NotImplemented
        return function(*args, **kwargs)


def _device(leaves: list[object]) -> torch.device:
    """Return the device on which a call with these arguments makes its result."""
    named = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    return torch.empty(0, device=[*named, *_devices(leaves), torch.get_default_device()][0]).device


def _devices(leaves: Iterable[object]) -> list[torch.device]:
    return [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)]


@contextmanager
def seeded(graph: GraphModule) -> Iterator[None]:
    """Insert ``shardc::graph_seed`` at the beginning of ``graph`` while AOTAutograd traces it."""
    nodes = list(graph.graph.nodes)
    first = next(node for node in nodes if node.op != "placeholder")
    place: dict[str, Argument] = {"device": _device_of(nodes)}
    with graph.graph.inserting_before(first):
        seed = graph.graph.call_function(torch.ops.shardc.graph_seed.default, (), place)
    graph.recompile()
    try:
        yield
    finally:
        graph.graph.erase_node(seed)
        graph.recompile()


def _device_of(nodes: list[Node]) -> torch.device:
    """Return the device of a graph's tensors: the accelerator, even if some are on the CPU."""
    devices = _devices(pytree.tree_leaves([node.meta.get("example_value") for node in nodes]))
    return next((d for d in devices if d.type != "cpu"), torch.device("cpu"))


def drop_unread_seed(graph: GraphModule) -> None:
    """Remove the seed of a graph without random ops, so that PyTorch's generator stays unchanged."""
    for node in graph.graph.nodes:
        if node.meta.get("original_aten") is torch.ops.shardc.graph_seed.default and not node.users:
            graph.graph.erase_node(node)
            graph.recompile()
            return
