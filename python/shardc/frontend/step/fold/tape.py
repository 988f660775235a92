"""The growing graph of a trace, whose sections can be compared and copied to its end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, get_proxy_slot
from torch.fx.node import map_arg

from shardc.frontend.importing.module_calls import MODULE
from shardc.frontend.importing.recorder import BACKWARD, FRAMES, Frames, NodeRecorder
from shardc.frontend.step.fold.signature import described
from shardc.frontend.step.traced_tensor import node_of, stand_ins
from shardc.runtime.torch_private import FakeTensor, OpOverload, pytree, schema_of

Moved = Callable[[str | None], str]
Known = dict[Node, Node]
"""Nodes of one call, mapped to those that replace them in another."""


class Unfoldable(Exception):
    """Copies of a layer might differ from a trace of it; ``reason`` is for the log."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Tape:
    """The graph that ``tracer`` records. ``seeds``: the node of the step's seed, which all draws read."""

    def __init__(self, tracer: PythonKeyTracer, recorder: NodeRecorder, seed: torch.Tensor | None) -> None:
        self._tracer, self._graph, self._recorder = tracer, tracer.graph, recorder
        slot = None if seed is None else get_proxy_slot(seed, tracer, None)
        self.seeds: list[Node] = [] if slot is None else [slot.proxy.node]

    @property
    def is_backward(self) -> bool:
        """Return whether the backward of the step is being traced."""
        return self._recorder.phase == BACKWARD

    def node(self, tensor: torch.Tensor) -> Node | None:
        """Return the node of a traced tensor; None for any other."""
        return node_of(tensor, self._tracer)

    def moved(self, source: torch.nn.Module, copy: torch.nn.Module) -> Moved | None:
        """Return a map of module calls from a call of ``source`` to its copy; None if none are noted."""
        calls = self._recorder.calls
        return None if calls is None else calls.of_copy(source, copy)

    def stand_ins(self, nodes: Sequence[Node]) -> list[torch.Tensor]:
        """Return new tensors that stand for nodes."""
        return stand_ins(nodes, self._tracer)

    def last(self) -> Node:
        """Return the newest node."""
        return next(reversed(self._graph.nodes))

    def after(self, last: Node) -> list[Node]:
        """Return the nodes made since ``last`` was the newest."""
        found, end = [], self.last()
        while last is not end:
            last = last.next
            found.append(last)
        return found

    def copy(self, nodes: Sequence[Node], known: Known, draws: int, moved: Moved | None = None) -> None:
        """Append copies of nodes, map inputs by ``known`` (which grows), and shift draws by ``draws``.

        ``moved``: maps module calls of the nodes to those of the copies.
        """
        for node in nodes:
            args, kwargs = _moved(node, known.__getitem__, draws)
            new = self._graph.create_node(node.op, node.target, args, kwargs)
            new.meta = dict(node.meta)
            if moved is not None and (MODULE in node.meta or moved(None)):
                new.meta[MODULE] = moved(node.meta.get(MODULE))
            known[node] = new
        if nodes:
            self._recorder.follow(nodes[-1].meta[FRAMES])

    def follow(self, lines: Frames) -> None:
        """Let later nodes without lines of their own have these."""
        self._recorder.follow(lines)

    def difference(self, old: Sequence[Node], new: Sequence[Node], known: Known, draws: int) -> str | None:
        """Say where ``new`` differs from what :meth:`copy` would make of ``old``; None if it does not.

        Maps the nodes of ``old`` to those of ``new`` in ``known``.
        """
        if len(old) != len(new):
            return f"it has {len(old)} ops in one call and {len(new)} in another"
        for before, after in zip(old, new, strict=True):
            args, kwargs = _moved(before, known.__getitem__, draws)
            given, found = (described((*a, dict(k))) for a, k in ((args, kwargs), (after.args, after.kwargs)))
            if before.op != after.op or given != found:
                return f"its calls have other arguments of {before.target} and {after.target}"
            if self._facts(before) != self._facts(after):
                return f"its calls have other results of {before.target} and {after.target}"
            known[before] = after
        return None

    def _facts(self, node: Node) -> list[object]:
        """Return what a node computes: its target or value, and the layout of its results."""
        target = self._constant(node) if node.op == "get_attr" else node.target
        values = pytree.tree_leaves(node.meta.get("val"))
        return [target, *(_layout(v) if isinstance(v, torch.Tensor) else v for v in values)]

    def _constant(self, node: Node) -> object:
        """Return the number that a node holds, or the node itself, since other constants are arguments."""
        value = getattr(self._tracer.root, str(node.target))
        is_real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and not value.is_meta
        return value.item() if is_real and value.numel() == 1 else node


def outer(nodes: Iterable[Node], known: Iterable[Node]) -> Node | None:
    """Return the first node that ``nodes`` read and that is neither among them nor known."""
    inner = set(known)
    for node in nodes:
        for read in node.all_input_nodes:
            if read not in inner:
                return read
        inner.add(node)
    return None


def _layout(value: torch.Tensor) -> tuple[object, ...]:
    return tuple(value.shape), value.stride(), value.dtype


def _moved(node: Node, place: Callable[[Node], Node], draws: int) -> tuple[tuple, dict]:
    """Return the arguments for a copy of a node."""
    args, kwargs = map_arg((node.args, node.kwargs), place)
    position = _draw(node.target) if draws and isinstance(node.target, OpOverload) else None
    if position is not None:
        number = args[position]
        assert isinstance(number, int), f"the number of a draw is {number}"
        args = (*args[:position], number + draws, *args[position + 1 :])
    return args, kwargs


@functools.cache
def _draw(target: OpOverload) -> int | None:
    """Return the position of the draw's number in a random op's arguments."""
    if target.namespace != "shardc":
        return None
    names = [argument.name for argument in schema_of(target).arguments]
    return names.index("op") if "op" in names else None
