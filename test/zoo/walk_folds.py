"""Walks the zoo with four layers: is the program of a trace that copies equal layers that of a trace of all?

python test/zoo/walk_folds.py -o folds.jsonl    # all; goes on where an earlier walk into that file stopped
python test/zoo/walk_folds.py --only LlamaForCausalLM
python test/zoo/walk_folds.py -o folds.jsonl --summary

Each model runs in a process of its own. A row says how many calls of layers were copied and, where the
programs differ, in what lines.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from walk import Row, run_apart  # sets the variables of each process, before torch is imported

if TYPE_CHECKING:
    from torch import Tensor, nn

DEPTH = 4
"""Layers: the third and the fourth are copies."""
TIMEOUT_S = 600
SHOWN = 3
"""Lines that are shown where programs differ."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    rows = _rows(options.output)
    if options.summary:
        print(summary(rows))
        return 0
    from subjects import SUBJECTS

    import shardc.frontend.step.capture  # noqa: F401  # warm: each model's process is a fork of this one

    done = {row["model"] for row in rows}
    names = [name for name in options.only or SUBJECTS if name not in done]
    random.Random(0).shuffle(names)  # a walk that is stopped has seen all kinds
    for number, name in enumerate(names):
        for row in run_apart(name, options.timeout, partial(_compared, name)):
            print(f"{number + 1}/{len(names)} {name} {row['stage']} {row['reason']}"[:300], flush=True)
            if options.output:
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return 0


def summary(rows: Sequence[Row]) -> str:
    """How many models ended at which stage, and each that is not equal."""
    counts = Counter(str(row["stage"]) for row in rows)
    copied = sum(bool(row.get("copies")) for row in rows if row["stage"] == "equal")
    lines = [f"{len(rows)} models: {dict(counts)}; {copied} of the equal ones have copies"]
    lines += [f"{row['model']}: {row['stage']}: {row['reason']}" for row in rows if row["stage"] != "equal"]
    return "\n".join(lines)


def _compared(name: str) -> Iterator[Row]:
    """``stage`` is where it ended: build, trace, differ or equal."""
    from architectures import ARCHITECTURES
    from subjects import SUBJECTS, of_architecture

    subject = of_architecture(ARCHITECTURES[name], DEPTH) if name in ARCHITECTURES else SUBJECTS[name]
    row: Row = {"model": name, "kind": subject.kind, "stage": "build", "reason": ""}
    try:
        model = subject.fresh()
        (batch,) = subject.batches(model, 1)
        row["stage"] = "trace"
        yield row | _both(subject.fresh, batch, subject.loss)
    except Exception as error:
        yield row | {"reason": f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]}


def _both(make: Callable[[], nn.Module], batch: object, loss: Callable[..., Tensor]) -> Row:
    """The programs of both ways compared. ``why``: what the log says of layers that were not copied."""
    import torch

    from shardc.dialects.context import new_context
    from shardc.environment import FOLD_LAYERS, changed
    from shardc.frontend.step.capture import capture_step
    from shardc.frontend.step.fold.replay import Copied
    from shardc.runtime.report.logs import TIMING

    copies, run, why = [], Copied.run, []
    Copied.run = lambda self: (copies.append(self), run(self))[1]
    handler = logging.Handler()
    handler.emit = lambda record: why.append(record.getMessage())
    texts = []
    for fold in "01":
        TIMING.addHandler(handler)
        TIMING.setLevel(logging.DEBUG)
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with changed({FOLD_LAYERS.name: fold}):
            captured = capture_step(model, optimizer, batch, loss=loss, context=new_context())
        texts.append(captured.module.operation.get_asm(assume_verified=True, enable_debug_info=True))
    said = {"copies": len(copies), "why": [text for text in dict.fromkeys(why) if text.startswith("trace:")]}
    if texts[0] == texts[1]:
        return {**said, "stage": "equal"}
    plain, folded = (text.splitlines() for text in texts)
    pairs = [pair for pair in zip_longest(plain, folded, fillvalue="") if pair[0] != pair[1]]
    same = "the same lines in another order" if Counter(plain) == Counter(folded) else ""
    reason = f"{len(pairs)} of {len(plain)} lines differ ({len(folded)} when folded) {same}"
    return {**said, "stage": "differ", "reason": reason, "lines": pairs[:SHOWN]}


def _rows(path: Path | None) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="file of JSON lines to append to")
    parser.add_argument("--only", action="append", help="a model's name; may be given again")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds for one model")
    parser.add_argument("--summary", action="store_true", help="say what the file holds")
    return parser


if __name__ == "__main__":
    sys.exit(main())
