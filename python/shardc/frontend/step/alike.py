"""Updates of parameters that are alike are traced once; those of the others are copies of the same nodes.

The optimizers of ``PER_PARAMETER`` run the same code for one parameter after the other. What that code does
depends on nothing but the parameter, its gradient, its state and the numbers of its group; which ops it calls
on their dtypes, shapes and strides. The update of a Llama's AdamW is half of the nodes of a step.
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
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, track_tensor_tree

from shardc.runtime.torch_private import (
    FakeTensor,
    FunctionalTensor,
    disable_current_modes,
    global_optimizer_hooks,
    optimizer_hooks,
)

PER_PARAMETER = (
    *(torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax),
    *(torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.ASGD),
)
_TORCH = os.path.dirname(torch.__file__) + os.sep
_WRAPPED_BY_SCHEDULERS = {"step"}


def updates_alone(optimizer: torch.optim.Optimizer) -> bool:
    """Whether each parameter's update is a function of its own tensors alone: that of PyTorch's own code,
    without hooks, and with no method or function replaced.
    """
    kind = type(optimizer)
    if kind not in PER_PARAMETER or any((*optimizer_hooks(optimizer), *global_optimizer_hooks())):
        return False
    own = {name for name in vars(optimizer) if callable(getattr(kind, name, None))} - _WRAPPED_BY_SCHEDULERS
    return not own and not _changed(kind)


def _changed(kind: type[torch.optim.Optimizer]) -> bool:
    """Whether a name that the optimizer's code reads has become another thing.

    Dynamo, once it has compiled an optimizer, leaves names of its own in the modules: nothing reads them,
    unless they hide builtins.
    """
    known, now = _KNOWN[kind], _code_of(kind)
    added = {name.rpartition(".")[2] for name in now.keys() - known.keys()}
    return bool(added & vars(builtins).keys()) or any(now.get(n, 0) != code for n, code in known.items())


def _code_of(kind: type[torch.optim.Optimizer]) -> dict[str, object]:
    """By name, the code of all functions that an optimizer's classes and their modules hold; other callables
    as they are, and a function that has code of others around it as that function.
    """
    modules = {base.__module__ for base in kind.__mro__ if base.__module__.startswith("torch.")}
    held = {f"{where}.{n}": value for where in modules for n, value in vars(sys.modules[where]).items()}
    # PyTorch wraps `step` of each class, once there is an optimizer of it, also where it is inherited.
    held |= {name: inspect.getattr_static(kind, name) for name in dir(kind)}
    found = {}
    for name, value in held.items():
        codes = [*_codes(value)]
        is_torchs = all(code.co_filename.startswith(_TORCH) for code in codes)
        found[name] = codes[-1] if codes and is_torchs else value if callable(value) else None
    return found


def _codes(value: object) -> Iterator[CodeType]:
    """Of a function and those that it wraps."""
    while isinstance(value, FunctionType):
        yield value.__code__
        value = getattr(value, "__wrapped__", None)


_KNOWN: dict[type[torch.optim.Optimizer], dict[str, object]] = {
    kind: _code_of(kind) for kind in PER_PARAMETER
}


@dataclass(frozen=True)
class _Sample:
    """A traced update: its inputs, the nodes of its own, and its results."""

    inputs: tuple[Node, ...]
    made: tuple[Node, ...]
    results: tuple[tuple[Node, FakeTensor], ...]


class AlikeUpdates:
    """The updates of one optimizer in one trace.

    ``numbers`` gives what updates may read besides their own tensors: the numbers of groups, and those that
    were computed from numbers alone and kept for the next parameter.
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
        tensors: Sequence[torch.Tensor | None],
        update: Callable[[], Sequence[torch.Tensor]],
    ) -> Sequence[torch.Tensor]:
        """``update()`` of ``tensors``; a copy of an earlier update of the same ``kind`` if they are like
        those that it had.
        """
        inputs = [None if tensor is None else self._node(tensor) for tensor in tensors]
        known = [node for node in inputs if node is not None]
        if len(known) < len(inputs) or any(_has_symbols(tensor) for tensor in tensors if tensor is not None):
            return update()
        places = tuple(map(known.index, known))  # a gradient may be the parameter itself
        kind = (kind, places, *(_layout(tensor) for tensor in tensors if tensor is not None))
        if (sample := self._samples.get(kind)) is not None:
            return self._copied(sample, known)
        last = self._last()
        results = update()
        if kind not in self._samples:
            self._samples[kind] = self._sample(known, last, results)
        return results

    def _sample(self, inputs: Sequence[Node], last: Node, results: Sequence[torch.Tensor]) -> _Sample | None:
        """The update that made the nodes after ``last``; None if it read anything that is not its own."""
        ends = [(self._node(tensor), _inner(tensor)) for tensor in results]
        self._shared |= {node for tensor in self._numbers() if (node := self._node(tensor)) is not None}
        made = [node for node in _after(last, self._last()) if node not in self._shared]
        read = {held for node in made for held in node.all_input_nodes}
        known = tuple((node, value) for node, value in ends if node is not None and node in {*inputs, *made})
        if not read <= {*inputs, *made, *self._shared} or len(known) < len(ends):
            return None
        return _Sample(tuple(inputs), tuple(made), known)

    def _copied(self, sample: _Sample, inputs: Sequence[Node]) -> list[torch.Tensor]:
        new: dict[Node, Node] = dict(zip(sample.inputs, inputs, strict=True))
        for node in sample.made:
            new[node] = self._tracer.graph.node_copy(node, lambda held: new.get(held, held))
        # Without modes, which would trace the making of these tensors.
        with disable_current_modes(), sample.results[0][1].fake_mode:
            made = [
                torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device)
                for _, v in sample.results
            ]
        return [self._traced(value, new[node]) for value, (node, _) in zip(made, sample.results, strict=True)]

    def _traced(self, made: torch.Tensor, node: Node) -> torch.Tensor:
        """A tensor as the trace has it, which stands for a node."""
        track_tensor_tree(made, Proxy(node, self._tracer), constant=None, tracer=self._tracer)
        return FunctionalTensor.to_functional(made)

    def _node(self, tensor: torch.Tensor) -> Node | None:
        """The node that a traced tensor is; None for one that the trace took for a constant."""
        if not isinstance(tensor, FunctionalTensor):
            return None
        slot = get_proxy_slot(_inner(tensor), self._tracer, None)
        return None if slot is None or slot.constant is not None else slot.proxy.node

    def _last(self) -> Node:
        return next(reversed(self._tracer.graph.nodes))


def _inner(tensor: torch.Tensor) -> FakeTensor:
    assert isinstance(tensor, FunctionalTensor)
    inner = tensor.from_functional()
    assert isinstance(inner, FakeTensor)
    return inner


def _has_symbols(tensor: torch.Tensor) -> bool:
    """Whether sizes depend on values, as those of a gradient may that comes from a cut at such a size."""
    inner = _inner(tensor)
    return any(isinstance(n, torch.SymInt) for n in (*inner.shape, *inner.stride(), inner.storage_offset()))


def _layout(tensor: torch.Tensor) -> Hashable:
    """What decides which ops an update calls on a tensor."""
    inner = _inner(tensor)
    marks = (tensor.requires_grad, inner.is_conj(), inner.is_neg())
    return inner.dtype, tuple(inner.shape), inner.stride(), inner.storage_offset(), marks


def _after(last: Node, end: Node) -> list[Node]:
    """The nodes after one node up to another."""
    found = []
    while last is not end:
        last = last.next
        found.append(last)
    return found
