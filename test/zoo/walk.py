"""Walk of the zoo: every model on every mesh, each in a process with a time limit; one JSON line per result.

python test/zoo/walk.py -o results.jsonl                # all; goes on where an earlier walk into that file
stopped python test/zoo/walk.py --sample 20 --day 2026-11-20    # 20 of those that are known to pass, the same
all that day python test/zoo/walk.py --only LlamaForCausalLM --only unet
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

TIMEOUT_S, MEMORY_BYTES = 240, 12 << 30
Row = dict[str, object]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    from subjects import SUBJECTS
    from table import read_passing
    from trial import MESHES  # warm: each model's process is a fork of this one

    names = options.only or list(SUBJECTS)
    if options.kind:
        names = [name for name in names if SUBJECTS[name].kind in options.kind]
    if options.sample:
        names = sample(options.sample, options.day, read_passing())
        print(f"sample of {len(names)} for {options.day}: {' '.join(names)}", flush=True)
    done = _done(options.output) if options.output else set()
    failed = 0
    for name in names:
        meshes = [mesh for mesh in options.mesh or MESHES if not done & {(name, mesh), (name, "*")}]
        for row in run_apart(name, options.timeout, partial(outcomes_on, name, meshes)) if meshes else ():
            failed += row["stage"] != "equal"
            _show(row)
            if options.output:
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return 1 if failed else 0


def sample(count: int, day: date, names: Iterable[str]) -> list[str]:
    """``count`` names, another choice each day."""
    return random.Random(day.toordinal()).sample(sorted(names), count)


def run_apart(name: str, timeout_s: float, outcomes: Callable[[], Iterable[Row]]) -> list[Row]:
    """The outcomes of one model, tried in a fork of this process; a crash or a time-out is an outcome too."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _work(write, outcomes)
    os.close(write)
    text, ended = _read_until(read, time.monotonic() + timeout_s)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    rows = [json.loads(line) for line in text.decode().splitlines() if line.endswith("}")]
    if not ended or status != 0:
        reason = f"no end in {timeout_s:.0f} s" if not ended else f"the process ended with status {status}"
        rows.append(
            {"model": name, "kind": "", "mesh": "*", "stage": "process", "reason": reason, "where": ""}
        )
    return rows


def _work(pipe: int, outcomes: Callable[[], Iterable[Row]]) -> None:
    status = 1
    try:
        import warnings

        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        for row in outcomes():
            os.write(pipe, (json.dumps(row) + "\n").encode())
        status = 0
    finally:
        os._exit(status)


def outcomes_on(name: str, meshes: Sequence[str]) -> Iterator[Row]:
    from subjects import subject_on
    from trial import CUTS, MESHES, try_model

    for _, alike in groupby(meshes, key=lambda mesh: mesh.startswith("rows")):
        among = list(alike)
        for outcome in try_model(subject_on(name, among[0]), {mesh: (MESHES | CUTS)[mesh] for mesh in among}):
            yield outcome.as_json()


def _read_until(pipe: int, deadline: float) -> tuple[bytes, bool]:
    """What is written to a pipe, and whether its writer closed it before the deadline."""
    text = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        part = os.read(pipe, 1 << 16)
        if not part:
            os.close(pipe)
            return text, True
        text += part
    os.close(pipe)
    return text, False


def _done(path: Path) -> set[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["model"], row["mesh"]) for row in rows}


def _show(row: Row) -> None:
    verdict = "pass" if row["stage"] == "equal" else f"{row['stage']}: {row['reason']} {row['where']}"
    print(f"{row['model']} {row['mesh']} {verdict}"[:300].replace("\n", " "), flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="file of JSON lines to append to")
    parser.add_argument("--only", action="append", help="a model's name; may be given again")
    parser.add_argument(
        "--kind", action="append", help="net, causal, masked, seq2seq, speech-seq2seq, image, audio or ctc"
    )
    parser.add_argument("--mesh", action="append", default=[], help="a mesh's name; all if not given")
    parser.add_argument("--sample", type=int, help="how many of those known to pass")
    parser.add_argument("--day", type=date.fromisoformat, default=date.today(), help="seed of the sample")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds for one model")
    return parser


if __name__ == "__main__":
    sys.exit(main())
