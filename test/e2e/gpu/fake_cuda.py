"""CUDA graphs on the CPU, as they are: work that is noted while it is captured and not done, and done again,
on the same addresses, at each replay.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class FakeGraph:
    """What was captured."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []
        self.pool: list[Tensor] = []
        self.replays = 0

    def replay(self) -> None:
        """Memory that the capture allocated may be given out many times over: nothing stays in it."""
        self.replays += 1
        for value in self.pool:
            value.fill_(77)
        for function, args, kwargs, made in self.calls:
            if "empty" in function.__name__:
                continue  # memory is the graph's own, and given out once
            for old, new in zip(made, tree_leaves(function(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def _raw(x: Tensor) -> Tensor:
    """The memory of a tensor by its address, which keeps nothing alive: all that a graph knows."""
    storage = x.untyped_storage()
    if not storage.nbytes():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    whole = torch.frombuffer(memory, dtype=torch.uint8).view(x.dtype)
    return whole.as_strided(x.shape, x.stride(), x.storage_offset())


class _Recorder(TorchDispatchMode):
    """Notes every call. What existed before the capture is left as it was."""

    def __init__(self, graph: FakeGraph) -> None:
        super().__init__()
        self._graph = graph
        self._before: list[tuple[Tensor, Tensor]] = []
        self._own: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        leaves = [v for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor)]
        if function._schema.is_mutable:
            written = [v for v in leaves if v.untyped_storage()._cdata not in self._own]
            self._before += [(v, v.clone()) for v in written]
        made = function(*args, **kwargs)
        given = {v.untyped_storage()._cdata for v in leaves}
        made_leaves = tree_leaves(made)
        for value in made_leaves:
            if isinstance(value, Tensor) and value.untyped_storage()._cdata not in given:
                self._own.add(value.untyped_storage()._cdata)
        self._graph.pool += [
            v for v in made_leaves if isinstance(v, Tensor) and v.untyped_storage()._cdata in self._own
        ]
        self._graph.calls.append(tree_map_only(Tensor, _raw, (function, args, kwargs, made_leaves)))
        return made

    def undo(self) -> None:
        for value, before in reversed(self._before):
            value.copy_(before)
        for value in self._graph.pool:  # what was computed is not there before a replay
            value.fill_(77)


class FakeEvent:
    """Everything is done when it is asked for."""

    def record(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass


class FakeCuda:
    """``torch.cuda`` for the runtime's graphs. ``graphs`` are those that were captured."""

    CUDAGraph, Event = FakeGraph, FakeEvent

    def __init__(self) -> None:
        self.graphs: list[FakeGraph] = []
        self.stream = "the stream"

    def synchronize(self) -> None:
        pass

    def is_current_stream_capturing(self) -> bool:
        return False

    def current_stream(self) -> str:
        return self.stream

    def set_stream(self, stream: str) -> None:
        self.stream = stream

    @contextmanager
    def graph(self, graph: FakeGraph, capture_error_mode: str) -> Iterator[None]:
        """As PyTorch's, it ends what was broken off by an error of its own, in the capture's stream."""
        assert capture_error_mode == "thread_local"
        recorder, stream, self.stream = _Recorder(graph), self.stream, "the capture's stream"
        try:
            with recorder:
                yield
            self.graphs.append(graph)
            self.stream = stream
        except RuntimeError:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")  # noqa: B904
        finally:
            recorder.undo()
