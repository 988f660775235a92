"""A rank's step as a CUDA graph: captured once, then started as a whole.

A graph does the same work on the same addresses each time. So what changes from step to step (the batch,
hyperparameters, the seed that random numbers are counted from) is copied into tensors that stay, and new
state is copied into the old's memory when the step is done, instead of taking its place. The first steps run
as they are: they load kernels and make communicators, which a capture may not. Collectives over NCCL are
captured with the rest; where a step cannot be captured (Gloo's collectives, a pipeline, a call that waits for
the device) it runs as it is, and a warning says why. A graph is captured anew when the state lies elsewhere,
or a shape is another.
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
"""Steps that run before one is captured."""
ALIGNMENT = 256
"""Of tables in the memory that they share, in bytes."""


class CudaGraphWarning(ShardcWarning):
    """A step cannot be captured and runs as it is; said once."""


@dataclass
class Capture:
    """What a capture leaves to be done: ``fills``, after it, of device memory that keeps what belongs there;
    ``checks``, after each replay, of integers with their messages (:func:`~.kernels.kernel_call.check`).

    What is filled lies in ``memory``, from before the capture: all memory that a capture itself allocates may
    be given out again, and a replay's earlier kernels would write over it. ``used_bytes`` of it were asked
    for.
    """

    memory: Tensor | None = None
    used_bytes: int = 0
    device: torch.device | None = None
    fills: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    checks: list[tuple[Tensor, str]] = field(default_factory=list)

    def take(self, table: Tensor, device: torch.device) -> Tensor:
        """Memory for a table, filled after the capture if there is enough."""
        start, self.device = self.used_bytes, device
        self.used_bytes = start + -(-table.nbytes // ALIGNMENT) * ALIGNMENT
        if self.memory is None or self.used_bytes > self.memory.nbytes:
            return torch.empty_like(table, device=device)  # in a capture that is made again
        made = self.memory[start : start + table.nbytes].view(table.dtype).view(table.shape)
        self.fills.append((made, table))
        return made


_active: Capture | None = None


def is_capturing() -> bool:
    """Whether this call is being captured."""
    return _active is not None


def on_device(table: Tensor, device: torch.device) -> Tensor:
    """``table`` of the host on a device. A capture cannot copy, so there it is copied before any replay."""
    return table.to(device) if _active is None else _active.take(table, device)


def check_index(found: Tensor, message: str) -> None:
    """Check what a kernel found, in a captured step when the next one begins. Raises IndexOutOfRange."""
    if _active is None:
        check(int(found.item()), message)
    else:
        _active.checks.append((found, message))


class Captured(Generic[T]):
    """``work()`` as a graph: ``results`` are in the graph's memory, which each replay writes anew."""

    def __init__(self, work: Callable[[], T]) -> None:
        """Raises RuntimeError where ``work`` cannot be captured; nothing of it was done then.

        Work with tables is captured twice: the first time tells how much memory they take.
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
            cuda.graph(self._graph, capture_error_mode="thread_local"),  # other threads go on
        ):
            self.results = work()
            self._found = torch.stack([f.reshape(()) for f, _ in capture.checks]) if capture.checks else None
        return capture

    def replay(self) -> None:
        """Do the work; what its checks find is left for ``finish``."""
        self._graph.replay()
        if self._found is None:
            return
        host = torch.empty(self._found.shape, dtype=self._found.dtype, pin_memory=torch.cuda.is_available())
        host.copy_(self._found, non_blocking=True)
        event = cuda.Event()
        event.record()
        self._late = host, event

    def finish(self) -> None:
        """Wait for what the checks of the last replay found. Raises IndexOutOfRange."""
        if self._late is None:
            return
        (found, event), self._late = self._late, None
        event.synchronize()
        for number, message in zip(found.tolist(), self._messages, strict=True):
            check(number, message)


Key = tuple[int | tuple[torch.Size, torch.dtype], ...]
"""Where what stays lies, and the form of what is copied."""


@dataclass(frozen=True)
class _Graph:
    """A captured step, whose result is its loss, and the memory of its arguments."""

    key: Key
    arguments: list[Tensor]
    work: Captured[Tensor]


class GraphedStep:
    """``function(rank, *values)`` as a graph; ``kept``: which arguments stay in place (state, constants)."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], rank: Rank, kept: Sequence[bool]) -> None:
        self._function, self._rank, self._kept = function, rank, list(kept)
        self._steps = self.captures = 0
        self._graph: _Graph | None = None
        self._refused = False

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """One step. Returns the loss. Raises IndexOutOfRange for an index of this step, or of the last."""
        self.finish()
        self._steps += 1
        if self._steps <= WARM_UPS or self._refused:
            return self._function(self._rank, *values)[0]
        given = zip(values, self._kept, strict=True)
        key = tuple(v.data_ptr() if stays else (v.shape, v.dtype) for v, stays in given)
        if self._graph is None or self._graph.key != key:
            self._graph = None  # its memory is free for the next
            self._graph = self._captured(key, values)
            if self._graph is None:
                return self._function(self._rank, *values)[0]
        return self._replayed(self._graph, values)

    def finish(self) -> None:
        """Wait for what the checks of the last step found. Raises IndexOutOfRange."""
        if self._graph is not None:
            self._graph.work.finish()

    def _captured(self, key: Key, values: Sequence[Tensor]) -> _Graph | None:
        """None if the step cannot be captured."""
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
        """Run every step as it is, and say so."""
        self._refused = True
        warn("StepNotCaptured", f"the step is not captured as a CUDA graph: {why}", CudaGraphWarning, 2)

    def _replayed(self, graph: _Graph, values: Sequence[Tensor]) -> Tensor:
        for into, value, stays in zip(graph.arguments, values, self._kept, strict=True):
            if not stays:
                into.copy_(value, non_blocking=True)
        graph.work.replay()
        return graph.work.results.clone()


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return str(error).strip().partition("\n")[0]


@contextmanager
def _in_its_stream() -> Iterator[None]:
    """Around a capture: one that fails leaves PyTorch in its stream, with an error that hides why."""
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
