"""Timeline of one step, recorded on all ranks and written as a Chrome trace.

Each rank is a process. It has threads for the program's lines, for waits, for collectives in flight (as many
as needed), and for a pipeline's actions, with names such as ``2F0``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from ..comm.collectives import Rank
from ..comm.connect import Place
from ..comm.mesh import Mesh
from ..program import Part, Program, Step
from .recorder import Recorder

LANES = ("actions", "ops", "waits", "collectives")
Row = tuple[str, str, float, float, dict[str, str | int]]
"""Lane, name, start and end in seconds since 1970, and further details."""
Rows = tuple[int, list[Row], list[tuple[float, int]], str]
"""Rank, its intervals, its memory over time, and the kind of memory."""
US = 1e6


@contextmanager
def recorded(program: Program, part: Part, rank: Rank) -> Iterator[tuple[Recorder, Step]]:
    """Context with a recorder, and this rank's function with recording. All ranks start together."""
    actions = program.actions[part.number] if program.actions else ()
    recorder = Recorder(rank.device, iter(actions))
    timed = program.with_ranges(recorder)
    timed.names.update({name: recorder.action(stage) for name, stage in timed.stages.items()})
    if dist.is_initialized():
        dist.barrier()
    rank.recorder = recorder
    try:
        yield recorder, timed.steps[part.number]
    finally:
        rank.recorder = None


def write_timeline(recorder: Recorder, part: Part, mesh: Mesh, place: Place, path: Path) -> None:
    """Gather the recordings of all ranks; rank 0 writes them.

    Actions are only those of ranks with index 0 on all axes except the pipeline's, so each appears once.
    """
    others = tuple((name, 1, size) for name, size in mesh.space if part.axis is None or name != part.axis[0])
    shows_actions = not any(mesh.coordinate(place.rank, axis) for axis in others)
    mine = _rows(recorder, place, shows_actions)
    every: list[Rows | None] = [mine]
    if mesh.world_size > 1:
        every = [None] * mesh.world_size
        dist.all_gather_object(every, mine)
    if place.rank == 0:
        found = [rows for rows in every if rows is not None]
        path.write_text(json.dumps({"traceEvents": list(_events(found)), "displayTimeUnit": "ms"}) + "\n")


def _rows(recorder: Recorder, place: Place, shows_actions: bool) -> Rows:
    on_gpu = place.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(place.device)
    notes = [note for note in recorder.notes if shows_actions or note.lane != "actions"]
    rows = [(n.lane, n.name, recorder.seconds(n.start), recorder.seconds(n.end), n.about) for n in notes]
    memory = [(recorder.seconds(when), held) for when, held in recorder.memory]
    return place.rank, rows, memory, "allocated memory" if on_gpu else "resident memory"


def _events(found: list[Rows]) -> Iterator[dict[str, object]]:
    """Yield events in Chrome's format, in microseconds since the first one."""
    first_s = min((row[2] for _, rows, _, _ in found for row in rows), default=0.0)
    for rank, rows, memory, counter in found:
        name = {"name": f"rank {rank} (measured)"}
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": name}
        for tid, (lane, of_lane) in enumerate(_lanes(rows)):
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": lane}}
            for of, name, start_s, end_s, about in of_lane:
                times = {"ts": (start_s - first_s) * US, "dur": (end_s - start_s) * US}
                what = {"ph": "X", "name": name, "cat": of, "pid": rank, "tid": tid}
                yield {**what, **times, "args": about}
        for when_s, held in memory:
            times = {"ts": (when_s - first_s) * US, "args": {"bytes": held}}
            yield {"ph": "C", "name": counter, "pid": rank, **times}


def _lanes(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield named groups of rows that do not overlap: one per lane, for collectives as many as needed."""
    for lane in LANES:
        threads: list[list[Row]] = []
        for row in sorted((row for row in rows if row[0] == lane), key=lambda row: row[2]):
            thread = next((t for t in threads if t[-1][3] <= row[2]), None)
            if thread is None:
                threads.append(thread := [])
            thread.append(row)
        for number, thread in enumerate(threads):
            yield (f"{lane} ({number + 1})" if number else lane), thread
