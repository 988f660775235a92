"""When each action of a pipeline ran: one step, measured on all ranks and written as a Chrome trace."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from ..comm.connect import Place
from ..comm.mesh import Mesh
from ..errors import NothingToTrace
from ..program import Part, Program

Span = tuple[str, float, float]
"""An action such as ``2F0``, its start and its end in seconds since 1970."""


def check_traceable(program: Program) -> None:
    """Raises NothingToTrace for a program that is no pipeline."""
    if not program.actions:
        hint = "compile the step with plan='pipeline' or a product with it"
        raise NothingToTrace("only a pipeline has a timeline of actions", "the program", hint)


@contextmanager
def recorded(program: Program, part: Part, place: Place) -> Iterator[list[Span]]:
    """Note the actions of this rank's next step. All ranks begin together. Raises NothingToTrace."""
    check_traceable(program)
    spans: list[Span] = []
    actions = iter(program.actions[part.number])
    stages = program.stages
    program.names.update({name: _timed(stage, actions, spans, place) for name, stage in stages.items()})
    if dist.is_initialized():
        dist.barrier()
    try:
        yield spans
    finally:
        program.names.update(stages)


def _timed(
    stage: Callable[..., object], actions: Iterator[str], spans: list[Span], place: Place
) -> Callable[..., object]:
    """``stage`` with a span for each call; the calls of all stages are ``actions`` in order."""
    finished = torch.cuda.synchronize if place.device.type == "cuda" else lambda: None

    def run(*arguments: object) -> object:
        finished()
        start_s = time.time()
        results = stage(*arguments)
        finished()
        spans.append((next(actions), start_s, time.time()))
        return results

    return run


def write_timeline(spans: list[Span], part: Part, mesh: Mesh, place: Place, path: Path) -> None:
    """Gather the spans of a pipeline's ranks (those with place 0 on all other axes); rank 0 writes them."""
    rows: list[tuple[int, list[Span]] | None] = [None] * mesh.world_size
    others = tuple((name, 1, size) for name, size in mesh.space if part.axis is None or name != part.axis[0])
    mine = None if any(mesh.coordinate(place.rank, axis) for axis in others) else (part.number, spans)
    if mesh.world_size > 1:
        dist.all_gather_object(rows, mine)
    else:
        rows = [mine]
    if place.rank == 0:
        found = [row for row in rows if row is not None]
        path.write_text(json.dumps({"traceEvents": list(_events(found)), "displayTimeUnit": "ms"}) + "\n")


def _events(rows: list[tuple[int, list[Span]]]) -> Iterator[dict[str, object]]:
    """Chrome's form: microseconds from the first action on."""
    first_s = min((start_s for _, spans in rows for _, start_s, _ in spans), default=0.0)
    for number, spans in rows:
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": f"rank {number}"}}
        for action, start_s, end_s in spans:
            times = {"ts": (start_s - first_s) * 1e6, "dur": (end_s - start_s) * 1e6}
            yield {"ph": "X", "name": action, "cat": "action", "pid": 0, "tid": number, **times}
