"""Measured time and memory of steps on a CPU, compared with predictions, and the times of their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from ..outputs import Result
from ..step import TrainStep
from .live_bytes import LiveBytes

WARM = 2
"""Number of warm-up steps, in which memory is mapped and the checks of the first run end."""
Batches = Iterator[dict[str, Tensor]]


class Measured:
    """Times of a run's steps, and memory of the step after the first WARM, which is slower."""

    def __init__(self, step: TrainStep, steps: int) -> None:
        self._step, self._seconds = step, list[float]()
        self._live = LiveBytes() if steps > WARM + 1 else None

    def runner(self, number: int) -> Callable[[Mapping[str, Tensor]], Result]:
        """Return the function that runs step ``number``."""
        if self._live is None or number not in (WARM - 1, WARM):
            return self._step.step_leaves
        if number == WARM:
            return partial(self._step.live_leaves, live=self._live)
        self._live.start()
        return self._step.step_leaves

    def took(self, number: int, seconds: float) -> None:
        """Record how long a step took."""
        if number > WARM:
            self._seconds.append(seconds)

    def report(self, predicted_s: float | None, planned_bytes: int) -> str:
        """Return text on predicted and measured figures; empty for a short run. All ranks must call it."""
        if self._live is None:
            return ""
        live = torch.tensor([self._live.peak_bytes + self._step.given_bytes])
        if dist.is_initialized():
            dist.all_reduce(live, dist.ReduceOp.MAX)
        return "\n".join([_time(predicted_s, self._seconds), _memory(planned_bytes, int(live.item()))])


def _time(predicted_s: float | None, seconds: list[float]) -> str:
    took = f"measured {1e3 * median(seconds):.1f} ms (median of {len(seconds)})" if seconds else ""
    said = "no prediction" if predicted_s is None else f"predicted {1e3 * predicted_s:.1f} ms"
    return f"time of a step: {said}, {took}"


def _memory(planned: int, live: int) -> str:
    said = f"planned {planned / 1e6:.1f} MB" if planned else "not planned"
    return f"tensors at the peak: {said}, measured {live / 1e6:.1f} MB"


def write_calls(step: TrainStep, batches: Batches, steps: int, folder: Path) -> None:
    """Run steps, and write the calls of those after the first WARM to a file for each rank."""
    rounds = []
    for number in range(WARM + steps):
        batch = next(batches)
        if dist.is_initialized():
            dist.barrier()
        if number < WARM:
            step.step_leaves(batch)
        else:
            rounds.append([call[:2] for call in step.calls_leaves(batch)[1].found])
    held = {"threads": torch.get_num_threads(), "rounds": rounds}
    (folder / f"{step.rank}.json").write_text(json.dumps(held))
    if dist.is_initialized():
        dist.barrier()
