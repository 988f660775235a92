"""Random ops of a graph that Dynamo hands over: counter-based, as those of a traced step, from a seed of each
call.

The seed is drawn from PyTorch's own generator where the graph begins, in its forward; whatever saves and
restores that generator's state brings the same numbers back, and a part of the forward that is computed again
has them anyway. Draws are numbered from 0 in the order of the trace, forward before backward, as
``capture_step`` numbers those of a step: with one seed, a graph draws what a step of the same program does.
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
    """The seed that a call of a compiled graph draws next from ``device``'s generator: 0-d int64."""
    return torch.ops.aten.randint.low(*_SEEDS, [], dtype=torch.int64, device=device)


torch.library.define(
    "shardc::graph_seed", "(*, Device device) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)
torch.library.impl("shardc::graph_seed", "CompositeExplicitAutograd", draw_seed)
torch.library.register_fake("shardc::graph_seed", draw_seed)


class GraphStream(RandomStream):
    """The draws of one graph, from the seed that stands at its beginning."""

    def begin(self, *, device: torch.device) -> torch.Tensor:
        """What ``shardc::graph_seed`` is traced as. A graph that is traced again has the same draws."""
        self.seed = None  # until it is drawn, by PyTorch
        self.seed, self._drawn = draw_seed(device), 0
        return self.seed

    def next(self) -> int:
        self._drawn += 1
        return self._drawn - 1

    def table(self) -> Table:
        """Decompositions for AOTAutograd: of the seed, and of the random ops that are to draw from it."""
        drawn: Table = {op: partial(self._drawn_here, draw) for op, draw in random_table(self).items()}
        return {torch.ops.shardc.graph_seed.default: self.begin, **drawn}

    def _drawn_here(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        """Leaves the op to PyTorch (NotImplemented) where the seed is not.

        That is in the body of a higher-order operator, on another device, or with a generator of its own.
        """
        leaves, mode = pytree.tree_leaves((args, kwargs)), get_proxy_mode()
        if self.seed is None or mode is None or not has_proxy_slot(self.seed, mode.tracer):
            return NotImplemented
        if _device(leaves) != self.seed.device or any(isinstance(leaf, torch.Generator) for leaf in leaves):
            return NotImplemented
        return function(*args, **kwargs)


def _device(leaves: list[object]) -> torch.device:
    """Where a call with these arguments makes its result."""
    named = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    return torch.empty(0, device=[*named, *_devices(leaves), torch.get_default_device()][0]).device


def _devices(leaves: Iterable[object]) -> list[torch.device]:
    return [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)]


@contextmanager
def seeded(graph: GraphModule) -> Iterator[None]:
    """``graph`` with ``shardc::graph_seed`` at its beginning, while AOTAutograd traces it."""
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
    """The device of a graph's tensors; the accelerator, if some of them are on the CPU."""
    devices = _devices(pytree.tree_leaves([node.meta.get("example_value") for node in nodes]))
    return next((d for d in devices if d.type != "cpu"), torch.device("cpu"))


def drop_unread_seed(graph: GraphModule) -> None:
    """A graph without a random op draws no seed: PyTorch's generator stays as it is."""
    for node in graph.graph.nodes:
        if node.meta.get("original_aten") is torch.ops.shardc.graph_seed.default and not node.users:
            graph.graph.erase_node(node)
            graph.recompile()
            return
