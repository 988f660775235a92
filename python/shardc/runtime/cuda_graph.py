"""Step of a rank as a CUDA graph: captured once, then launched as a whole.

A graph does the same work on the same addresses each time. So the values that change between steps (the
batch, hyperparameters, the seed) are copied into fixed tensors, and new state is copied over the old state at
the end of the step. The first steps run without a graph, because they load kernels and create communicators,
which a capture may not do. Collectives over NCCL are captured, too. A step that cannot be captured (with
Gloo's collectives, a pipeline, or a call that waits for the device) runs without a graph, and a warning says
why. If the state moves in memory or a shape changes, a new graph is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor, cuda

from .comm.collectives import Rank
from .kernels.kernel_call import check
from .report.messages import ShardcWarning, warn
from .torch_private import foreach_copy_

T = TypeVar("T")
WARM_UPS = 2
"""Number of steps that run before the capture."""
ALIGNMENT = 256
"""Alignment, in bytes, of tables in their shared memory."""


class CudaGraphWarning(ShardcWarning):
    """A step cannot be captured, and runs without a graph. Reported once."""


@dataclass
class Capture:
    """Work that a capture leaves for later.

    ``fills``: tables to copy to the device after the capture. ``checks``: integers to check after each
    replay, with their messages (:func:`~.kernels.kernel_call.check`). ``memory``: memory of the tables,
    allocated before the capture. Memory allocated within a capture may be reused, and then earlier kernels of
    a replay would overwrite the tables. ``used_bytes``: how much of ``memory`` was requested.
    """

    memory: Tensor | None = None
    used_bytes: int = 0
    device: torch.device | None = None
    fills: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    checks: list[tuple[Tensor, str]] = field(default_factory=list)

    def take(self, table: Tensor, device: torch.device) -> Tensor:
        """Return device memory for a table. It is filled after the capture, if ``memory`` is large enough."""
        start, self.device = self.used_bytes, device
        self.used_bytes = start + -(-table.nbytes // ALIGNMENT) * ALIGNMENT
        if self.memory is None or self.used_bytes > self.memory.nbytes:
            return torch.empty_like(table, device=device)  # this capture will be repeated with more memory
        made = self.memory[start : start + table.nbytes].view(table.dtype).view(table.shape)
        self.fills.append((made, table))
        return made


_active: Capture | None = None


def is_capturing() -> bool:
    """Return True while a step is being captured."""
    return _active is not None


def on_device(table: Tensor, device: torch.device) -> Tensor:
    """Return a host table on a device. A capture cannot copy; it delays the copy until before any replay."""
    return table.to(device) if _active is None else _active.take(table, device)


def check_index(found: Tensor, message: str) -> None:
    """Check an index that a kernel reports. Raises IndexOutOfRange; in a captured step, at the next step."""
    if _active is None:
        check(int(found.item()), message)
    else:
        _active.checks.append((found, message))


class Captured(Generic[T]):
    """``work()`` as a graph. ``results`` are in the graph's memory, which each replay overwrites."""

    def __init__(self, work: Callable[[], T]) -> None:
        """Capture ``work``. Raises RuntimeError, without any effect, if it cannot be captured.

        Work with tables is captured twice: the first capture measures the memory of the tables.
        """
        capture, room = self._capture(work, None), 0
        while capture.used_bytes > room:
            room, device = capture.used_bytes, capture.device
            del self._graph, self.results, self._found
            capture = self._capture(work, torch.empty(room, dtype=torch.uint8, device=device))
        for made, table in capture.fills:
            made.copy_(table)
        self._messages = [message for _, message in capture.checks]
        self._fills = capture.fills
        self._late: tuple[Tensor, cuda.Event] | None = None

    def _capture(self, work: Callable[[], T], memory: Tensor | None) -> Capture:
        self._graph = cuda.CUDAGraph()
        with (
            _capturing(memory) as capture,
            _in_its_stream(),
            cuda.graph(self._graph, capture_error_mode="thread_local"),  # other threads may use CUDA
        ):
            self.results = work()
            self._found = torch.stack([f.reshape(()) for f, _ in capture.checks]) if capture.checks else None
        return capture

    def replay(self) -> None:
        """Launch the graph. ``finish`` evaluates its checks."""
        self._graph.replay()
        if self._found is None:
            return
        host = torch.empty(self._found.shape, dtype=self._found.dtype, pin_memory=torch.cuda.is_available())
        host.copy_(self._found, non_blocking=True)
        event = cuda.Event()
        event.record()
        self._late = host, event

    def finish(self) -> None:
        """Wait for the checks of the last replay. Raises IndexOutOfRange."""
        if self._late is None:
            return
        (found, event), self._late = self._late, None
        event.synchronize()
        for number, message in zip(found.tolist(), self._messages, strict=True):
            check(number, message)


Key = tuple[int | tuple[torch.Size, torch.dtype], ...]
"""Addresses of arguments that stay in place, and shapes and dtypes of those that are copied."""


@dataclass(frozen=True)
class _Graph:
    """Captured step, whose result is the loss, and the memory of its arguments."""

    key: Key
    arguments: list[Tensor]
    work: Captured[Tensor]


class GraphedStep:
    """``function(rank, *values)`` as a graph. ``kept``: which arguments stay in place (state, constants)."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], rank: Rank, kept: Sequence[bool]) -> None:
        self._function, self._rank, self._kept = function, rank, list(kept)
        self._steps = self.captures = 0
        self._graph: _Graph | None = None
        self._refused = False

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """Run one step; return the loss. Raises IndexOutOfRange for an index of this step or the last."""
        self.finish()
        self._steps += 1
        if self._steps <= WARM_UPS or self._refused:
            return self._function(self._rank, *values)[0]
        given = zip(values, self._kept, strict=True)
        key = tuple(v.data_ptr() if stays else (v.shape, v.dtype) for v, stays in given)
        if self._graph is None or self._graph.key != key:
            self._graph = None  # frees its memory for the next graph
            self._graph = self._captured(key, values)
            if self._graph is None:
                return self._function(self._rank, *values)[0]
        return self._replayed(self._graph, values)

    def finish(self) -> None:
        """Wait for the checks of the last step. Raises IndexOutOfRange."""
        if self._graph is not None:
            self._graph.work.finish()

    def _captured(self, key: Key, values: Sequence[Tensor]) -> _Graph | None:
        """Capture the step; return None if that is impossible."""
        arguments = [v if stays else v.clone() for v, stays in zip(values, self._kept, strict=True)]

        def work() -> Tensor:
            with self._rank.late_stores() as stores:
                loss = self._function(self._rank, *arguments)[0]
                if stores:
                    foreach_copy_([old for old, _ in stores], [new for _, new in stores])
            return loss

        try:
            captured = Captured(work)
        except RuntimeError as error:
            cuda.synchronize()
            self.refuse(first_line(error))
            return None
        self.captures += 1
        return _Graph(key, arguments, captured)

    def refuse(self, why: str) -> None:
        """Run every step without a graph, and warn with the reason."""
        self._refused = True
        warn("StepNotCaptured", f"the step is not captured as a CUDA graph: {why}", CudaGraphWarning, 2)

    def _replayed(self, graph: _Graph, values: Sequence[Tensor]) -> Tensor:
        for into, value, stays in zip(graph.arguments, values, self._kept, strict=True):
            if not stays:
                into.copy_(value, non_blocking=True)
        graph.work.replay()
        return graph.work.results.clone()


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


@contextmanager
def _in_its_stream() -> Iterator[None]:
    """Context of a capture that restores the current stream, and raises the real cause, if it fails."""
    stream = cuda.current_stream()
    try:
        yield
    except RuntimeError as error:
        cuda.set_stream(stream)
        cause = error.__context__
        raise cause if isinstance(cause, RuntimeError) else error from None


@contextmanager
def _capturing(memory: Tensor | None) -> Iterator[Capture]:
    global _active
    _active = Capture(memory)
    try:
        yield _active
    finally:
        _active = None
