"""Walks PyTorch's operator database through ``torch.compile(backend="shardc")`` and writes the table
``op_db.md``.

    python test/zoo/op_db.py [--table test/zoo/op_db.md] [--only NAME ...] [--sample 25 --seed 20260101]
    [--jobs 1]

Each op runs in a process of its own, forked from one that has compiled before, with a time limit: a crash or
a hang is a row. ``op_check.py`` says what is compared. Ops that draw random numbers (eager differs under
another seed) or leave memory uninitialised are compared in shapes, dtypes and strides alone. The exit code is
1 if an op is wrong, raises, crashes or hangs.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import gc
import json
import random
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from op_check import BAD, FAILURES, OUTCOMES, Verdict, check_op
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

SECTIONS = {
    "Failures": FAILURES,
    "Where PyTorch's own aot_eager differs from eager, or raises, in the same way": (
        "PyTorch differs",
        "PyTorch raises",
    ),
    "What falls back, by cause": ("partly", "fell back"),
    "What the backend never sees": ("no graph",),
}


@dataclass
class Row:
    """One op: its outcome is the worst of its calls' (``partly`` if some compile and some do not)."""

    name: str
    verdicts: list[Verdict]
    seconds: float

    @property
    def outcome(self) -> str:
        outcomes = {verdict.outcome for verdict in self.verdicts}
        for bad in BAD:
            if bad in outcomes:
                return bad
        real = outcomes - {"no graph"}
        return ("partly" if len(real) > 1 else real.pop()) if real else "no graph"


def name_of(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def walk(ops: Iterable[OpInfo], samples: int, limit_s: float, jobs: int) -> Iterator[Row]:
    """A row for each op, each from a child process that is killed after ``limit_s`` seconds."""
    waiting, running = list(reversed(list(ops))), []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_Child(waiting.pop(), samples, limit_s))
        for child in [child for child in running if child.done()]:
            running.remove(child)
            yield child.row()
        time.sleep(0.005)


class _Child:
    def __init__(self, op: OpInfo, samples: int, limit_s: float) -> None:
        self.name, self.started, self.limit_s = name_of(op), time.monotonic(), limit_s
        self.text, self.end, self.fate = b"", 0.0, Verdict("", "")
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(reading)
            _child(op, samples, writing)
        os.close(writing)
        os.set_blocking(reading, False)
        self.pipe = reading

    def done(self) -> bool:
        self._read()
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid and time.monotonic() - self.started > self.limit_s:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.fate = Verdict("timeout", f"not done after {self.limit_s:.0f} s")
        elif not pid:
            return False
        elif status:
            self.fate = Verdict("crash", f"the process ended with status {status}")
        self._read()
        os.close(self.pipe)
        self.end = time.monotonic()
        return True

    def _read(self) -> None:
        try:
            while block := os.read(self.pipe, 1 << 16):
                self.text += block
        except BlockingIOError:
            pass  # nothing more to read now

    def row(self) -> Row:
        verdicts = [Verdict(**json.loads(line)) for line in self.text.decode().splitlines()]
        if self.fate.outcome:
            verdicts.append(self.fate)
        return Row(self.name, verdicts or [Verdict("no graph", "no samples")], self.end - self.started)


def _child(op: OpInfo, samples: int, pipe: int) -> None:
    """Writes a line of JSON for each verdict and never returns. What the op prints goes nowhere."""
    status = 1
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        if "SHARDC_OP_DB_DEBUG" not in os.environ:
            os.dup2(sink, 2)
        warnings.simplefilter("ignore")
        for verdict in check_op(op, samples):
            os.write(pipe, (json.dumps(asdict(verdict)) + "\n").encode())
        status = 0
    except BaseException as error:
        os.write(
            pipe,
            (json.dumps(asdict(Verdict("crash", f"{type(error).__name__}: {error}"[:200]))) + "\n").encode(),
        )
    finally:
        os._exit(status)


def warm_up() -> None:
    """Everything that the first compile imports and builds, before the forks."""
    x = torch.randn(3, requires_grad=True)
    torch.compile(lambda x: x.sin().exp(), backend="shardc")(x).sum().backward()
    torch._dynamo.reset()
    # Samples seed random ops inside the call, where Dynamo stops; the check seeds before every call itself.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    gc.collect()
    gc.freeze()  # torch._dynamo.reset collects garbage: not among what is here already


def table(rows: list[Row]) -> str:
    """The markdown table: counts, then for each kind of outcome its causes, most frequent first."""
    ops = Counter(row.outcome for row in rows)
    calls = Counter(verdict.outcome for row in rows for verdict in row.verdicts)
    lines = ['# PyTorch\'s operator database through `torch.compile(backend="shardc")`', ""]
    lines += [
        f"Written by `test/zoo/op_db.py` with torch {torch.__version__}; its docstrings say what is "
        f"compared.",
        "",
    ]
    lines += ["| outcome | ops | calls | |", "|---|--:|--:|---|"]
    lines += [
        f"| {o} | {ops[o]} | {calls[o]} | {meaning} |"
        for o, meaning in OUTCOMES.items()
        if ops[o] or calls[o]
    ]
    lines += [f"| all | {len(rows)} | {sum(calls.values())} | |", ""]
    for title, outcomes in SECTIONS.items():
        causes = _by_cause(rows, outcomes)
        if causes:
            lines += [f"## {title}", "", "| cause | ops | which |", "|---|--:|---|"]
            lines += [f"| {cause} | {len(which)} | {', '.join(which)} |" for cause, which in causes]
            lines.append("")
    return "\n".join(lines)


def _by_cause(rows: list[Row], outcomes: Collection[str]) -> list[tuple[str, list[str]]]:
    """Causes with the ops that they hit; of a failure also the first call."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        for verdict in row.verdicts:
            if verdict.outcome in outcomes:
                call = "" if verdict.outcome in ("partly", "fell back", "no graph") else f" ({verdict.call})"
                for cause in verdict.cause.split("; "):
                    found[_escaped(cause)].setdefault(row.name, row.name + call)
    named = [(cause, sorted(which.values())) for cause, which in found.items()]
    return sorted(named, key=lambda item: (-len(item[1]), item[0]))


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, help="write the table here")
    parser.add_argument("--only", nargs="*", help="names of ops")
    parser.add_argument("--sample", type=int, help="only so many ops, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--samples", type=int, default=2, help="samples of each op in float32; one in other dtypes"
    )
    parser.add_argument("--limit-s", type=float, default=120.0, help="seconds after which an op is given up")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    ops = [op for op in op_db if not options.only or op.name in options.only or name_of(op) in options.only]
    if options.sample:
        ops = random.Random(options.seed).sample(ops, options.sample)
        print(f"seed {options.seed}: {' '.join(map(name_of, ops))}")
    started = time.monotonic()
    warm_up()
    rows = []
    for row in walk(ops, options.samples, options.limit_s, options.jobs):
        rows.append(row)
        if len(rows) % 50 == 0:
            print(f"{len(rows)} of {len(ops)} ops, {time.monotonic() - started:.0f} s", flush=True)
        for verdict in row.verdicts:
            if options.only or verdict.outcome in FAILURES:
                print(
                    f"{row.name} [{row.seconds:.1f} s] {verdict.outcome}, {verdict.call}: {verdict.cause}",
                    flush=True,
                )
    rows.sort(key=lambda row: row.name)
    seconds = time.monotonic() - started
    print(f"{len(rows)} ops in {seconds:.0f} s: {dict(Counter(row.outcome for row in rows))}")
    if options.table:
        options.table.write_text(table(rows))
    return int(any(row.outcome in FAILURES for row in rows))


if __name__ == "__main__":
    sys.exit(main())
