"""Peak of the tensors of each rank in a step: ``peak_worker.py FOLDER BATCH OUT``.

BATCH is a file of torch.save with the batch; rank r writes loss and peak to OUT/r.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from rank_main import run

from shardc.runtime import TrainStep
from shardc.runtime.report.live_bytes import LiveBytes

FOLDER, BATCH, OUT = sys.argv[1:]


def main() -> None:
    step, live = TrainStep.load(FOLDER, timeout_s=120), LiveBytes()
    leaves = step.leaves(torch.load(BATCH))
    step.step_leaves(leaves)
    live.start()
    step.step_leaves(leaves)
    loss = step.live_leaves(leaves, live)
    found = {"loss": float(loss), "peak_bytes": live.peak_bytes + step.given_bytes}
    (Path(OUT) / f"{step.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    run(main, "measured")
