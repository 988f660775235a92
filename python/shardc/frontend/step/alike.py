"""Traces equal parameter updates once; updates of the other parameters are copies of the same nodes.

The optimizers in ``PER_PARAMETER`` run the same code for each parameter. That code depends on the parameter,
its gradient, its state and the numbers of its group alone. The ops that it calls depend on dtypes, shapes and
strides alone. The update of AdamW makes half of the nodes of a Llama's step.
"""

from __future__ import annotations

import builtins
import inspect
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType

import torch
from torch.fx import Node, Proxy
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from shardc.frontend.step.traced_tensor import inner_of, layout_at, layout_of, node_of
from shardc.runtime.torch_private import (
    global_optimizer_hooks,
    optimizer_hooks,
    without_torch_functions,
)

PER_PARAMETER = (
    *(torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax),
    *(torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.ASGD),
)
_TORCH = os.path.dirname(torch.__file__) + os.sep
_WRAPPED_BY_SCHEDULERS = {"step"}


def updates_alone(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether each parameter's update is a function of its own tensors alone.

    That holds for PyTorch's own optimizers without hooks and without replaced methods or functions.
    """
    kind = type(optimizer)
    if kind not in PER_PARAMETER or any((*optimizer_hooks(optimizer), *global_optimizer_hooks())):
        return False
    own = {name for name in vars(optimizer) if callable(getattr(kind, name, None))} - _WRAPPED_BY_SCHEDULERS
    return not own and not _changed(kind)


def _changed(kind: type[torch.optim.Optimizer]) -> bool:
    """Return whether a name that the optimizer's code reads was replaced.

    After Dynamo has compiled an optimizer, it leaves names of its own in the modules. Nothing reads them,
    unless they hide builtins.
    """
    known, now = _KNOWN[kind], _code_of(kind)
    added = {name.rpartition(".")[2] for name in now.keys() - known.keys()}
    return bool(added & vars(builtins).keys()) or any(now.get(n, 0) != code for n, code in known.items())


def _code_of(kind: type[torch.optim.Optimizer]) -> dict[str, object]:
    """Return the code of all functions in an optimizer's classes and their modules, by name.

    Other callables are returned themselves, and so is a function that is wrapped by code from outside torch.
    """
    modules = {base.__module__ for base in kind.__mro__ if base.__module__.startswith("torch.")}
    held = {f"{where}.{n}": value for where in modules for n, value in vars(sys.modules[where]).items()}
    # PyTorch wraps the `step` of each class once an optimizer of it exists, also where it is inherited.
    held |= {name: inspect.getattr_static(kind, name) for name in dir(kind)}
    found = {}
    for name, value in held.items():
        codes = [*_codes(value)]
        is_torchs = all(code.co_filename.startswith(_TORCH) for code in codes)
        found[name] = codes[-1] if codes and is_torchs else value if callable(value) else None
    return found


def _codes(value: object) -> Iterator[CodeType]:
    """Yield the code of a function and of those that it wraps."""
    while isinstance(value, FunctionType):
        yield value.__code__
        value = getattr(value, "__wrapped__", None)


_KNOWN: dict[type[torch.optim.Optimizer], dict[str, object]] = {
    kind: _code_of(kind) for kind in PER_PARAMETER
}


@dataclass(frozen=True)
class _Sample:
    """A traced update: its inputs, its own nodes, and its results."""

    inputs: tuple[Node, ...]
    made: tuple[Node, ...]
    results: tuple[Node, ...]


class AlikeUpdates:
    """Updates of one optimizer in one trace.

    ``numbers`` returns what updates may read besides their own tensors: the numbers of groups, and numbers
    computed from these alone and kept for the next parameter.
    """

    def __init__(self, numbers: Callable[[], Iterable[torch.Tensor]]) -> None:
        mode = get_proxy_mode()
        assert mode is not None
        self._tracer, self._numbers = mode.tracer, numbers
        self._shared: set[Node] = set()
        self._samples: dict[Hashable, _Sample | None] = {}

    def run(
        self,
        kind: Hashable,
        tensors: Sequence[torch.Tensor | Node | None],
        update: Callable[[], Sequence[torch.Tensor]],
    ) -> Sequence[torch.Tensor | Proxy]:
        """Run ``update()`` of ``tensors``, or copy an update of the same ``kind`` with similar tensors.

        A node stands for a tensor that no update has read yet.
        """
        with without_torch_functions():
            known = [node for tensor in tensors if (node := self._node(tensor)) is not None]
            if len(known) < len(tensors) or any(_has_symbols(tensor) for tensor in tensors):
                known = []
            places = tuple(map(known.index, known))  # a gradient may be the parameter itself
            kind = (kind, places, *(_layout(tensor) for tensor in tensors if tensor is not None))
            if known and (sample := self._samples.get(kind)) is not None:
                return self._copied(sample, known)
        if not known:
            return update()
        last = self._last()
        results = update()
        if kind not in self._samples:
            self._samples[kind] = self._sample(known, last, results)
        return results

    def _sample(self, inputs: Sequence[Node], last: Node, results: Sequence[torch.Tensor]) -> _Sample | None:
        """Return the update that made the nodes after ``last``; None if it read other tensors."""
        ends = [self._node(tensor) for tensor in results]
        self._shared |= {node for tensor in self._numbers() if (node := self._node(tensor)) is not None}
        made = [node for node in _after(last, self._last()) if node not in self._shared]
        read = {held for node in made for held in node.all_input_nodes}
        known = tuple(node for node in ends if node is not None and node in {*inputs, *made})
        if not read <= {*inputs, *made, *self._shared} or len(known) < len(ends):
            return None
        return _Sample(tuple(inputs), tuple(made), known)

    def _copied(self, sample: _Sample, inputs: Sequence[Node]) -> list[Proxy]:
        new: dict[Node, Node] = dict(zip(sample.inputs, inputs, strict=True))
        for node in sample.made:
            new[node] = self._tracer.graph.node_copy(node, lambda held: new.get(held, held))
        return [Proxy(new[node], self._tracer) for node in sample.results]

    def _node(self, tensor: torch.Tensor | Node | None) -> Node | None:
        return node_of(tensor, self._tracer) if isinstance(tensor, torch.Tensor) else tensor

    def _last(self) -> Node:
        return next(reversed(self._tracer.graph.nodes))


def _has_symbols(tensor: torch.Tensor | Node | None) -> bool:
    """Return whether sizes depend on values, as those of a gradient may after a slice at such a size."""
    if not isinstance(tensor, torch.Tensor):
        return False
    inner = inner_of(tensor)
    return any(isinstance(n, torch.SymInt) for n in (*inner.shape, *inner.stride(), inner.storage_offset()))


def _layout(tensor: torch.Tensor | Node) -> Hashable:
    return layout_at(tensor) if isinstance(tensor, Node) else layout_of(tensor)


def _after(last: Node, end: Node) -> list[Node]:
    """Return the nodes after one node up to another."""
    found = []
    while last is not end:
        last = last.next
        found.append(last)
    return found
